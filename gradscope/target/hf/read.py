"""Sizes out of a configuration that the inputs of its model must fit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gradscope.target.hf.settings import parts_of
from gradscope.target.infer.documented import documented
from gradscope.target.infer.guess import Guess

HIGHEST_ID = 100
"""Made-up words stay below it, so that they are no special tokens of a small vocabulary, which are its last."""

COUNT = re.compile(r"num_(?!channels|frames)")
"""Settings of a part that an axis of the inputs of the whole may be called after."""


@dataclass(frozen=True)
class Facts:
    """Sizes out of a configuration that inputs must fit."""

    config: Any
    vocab: int
    width: int
    side: int
    size: Any
    channels: int
    patch: int
    temporal: int
    frames: int
    mel: int
    image_token: int | None
    video_token: int | None
    audio_token: int | None
    told: Mapping[str, Guess] = field(default_factory=dict)
    """Inputs whose shape the documentation of forward tells."""

    def sizes(self) -> dict[str, int]:
        """All whole numbers of the configuration by name, and the sizes that axes are usually named for.

        A part tells what the whole does not, such as the code books of a decoder.
        """
        inner = {name: n for part in parts_of(self.config).values() for name, n in _numbers(part) if COUNT.match(name)}
        told = {**inner, **dict(_numbers(self.config))}
        return {**told, "vocab": self.vocab, "width": self.width, "side": self.side, "channels": self.channels}


def read_facts(config: Any, forward: Callable[..., object] | None = None) -> Facts:
    """Look the sizes up in a configuration and its parts, and the shapes in the documentation of a forward."""
    eyes = _part(config, ("vision", "image", "visual", "backbone", "vit")) or config
    ears = _part(config, ("audio", "speech", "encoder")) or config
    facts = Facts(
        config,
        vocab=min(number_in(config, "vocab_size", "src_vocab_size", "text_vocab_size", default=HIGHEST_ID), HIGHEST_ID),
        width=number_in(config, "hidden_size", "d_model", "n_embd", "embed_dim", default=64),
        size=getattr(eyes, "image_size", None),
        side=number_in(eyes, "image_size", "img_size", "input_size", "crop_size", default=64),
        channels=number_in(eyes, "num_channels", "in_channels", "in_chans", "num_input_channels", default=3),
        patch=number_in(eyes, "patch_size", "spatial_patch_size", default=16),
        temporal=number_in(eyes, "temporal_patch_size", default=1),
        frames=number_in(eyes, "num_frames", "frames_per_clip", default=4),
        mel=number_in(
            ears,
            "num_mel_bins",
            "feature_size",
            "input_feat_per_channel",
            "n_mels",
            "mel_bins",
            "input_dim",
            "feature_projection_input_dim",
            "input_feat_size",
            "num_mel_filters",
            default=80,
        ),
        image_token=_token(config, "image"),
        video_token=_token(config, "video"),
        audio_token=_token(config, "audio"),
    )
    return facts if forward is None else replace(facts, told=documented(forward, facts.sizes()))


def _numbers(config: Any) -> Iterator[tuple[str, int]]:
    """Yield the whole numbers of a configuration above zero, by name."""
    yield from ((name, n) for name, n in vars(config).items() if type(n) is int and n > 0)


def _part(config: Any, words: tuple[str, ...]) -> Any:
    return next((part for key, part in parts_of(config).items() if any(word in key for word in words)), None)


def _token(config: Any, kind: str) -> int | None:
    for owner in (config, *parts_of(config).values()):
        for name in (f"{kind}_token_id", f"{kind}_token_index", f"{kind}_token"):
            if isinstance(value := getattr(owner, name, None), int):
                return value
    return None


def number_in(config: Any, *names: str, default: int) -> int:
    """The first of the settings that a configuration or a part of it has."""
    for owner in (
        config,
        *parts_of(config).values(),
        *(p for part in parts_of(config).values() for p in parts_of(part).values()),
    ):
        for name in names:
            value = getattr(owner, name, None)
            if isinstance(value, tuple | list) and value and isinstance(value[0], int):
                value = value[0]
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return default
