"""First guesses for the inputs of a transformers model, from the signature of its forward and its configuration.

The search refines them by what their errors say.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from gradscope.target.hf.names import GRID, LOWEST_ID, TOKENS, named
from gradscope.target.hf.shrink import parts_of
from gradscope.target.infer.guess import BATCH, Candidate, Guess

DECODER_TOKENS = 8
HIGHEST_ID = 100
MOST_OTHERS = 3
"""Ways to give a picture or a sound that are tried beside a text."""
RANK_COST, LABEL_COST = 0.3, 0.1
"""Costs of the second kind of input against the first, and of going without labels."""
FRAMES = 64
MOST_FRAMES = 4096
SAMPLES = 4000
GRID_NAMES = ("image_grid_thw", "grid_thw", "image_grid_hws", "grid_hw", "grid_hws")
AUDIO_NAMES = ("input_features", "input_values", "audio_values", "audio_input_values", "audio_features")
PLACE_MASKS = ("image_embeds_position_mask",)
PLACEHOLDER_COUNTS = (
    "num_query_tokens", "latent_query_num", "image_seq_length", "mm_tokens_per_image", "num_image_tokens",
)  # fmt: skip
PICTURE_NAMES = ("pixel_values", "pixel_values_videos", "pixel_values_images")


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
    audio_token: int | None


def read_facts(config: Any) -> Facts:
    """Look the sizes up in a configuration and its parts."""
    eyes = _part(config, ("vision", "image", "visual", "backbone", "vit")) or config
    ears = _part(config, ("audio", "speech", "encoder")) or config
    return Facts(
        config,
        vocab=min(_number(config, "vocab_size", "src_vocab_size", "text_vocab_size", default=HIGHEST_ID), HIGHEST_ID),
        width=_number(config, "hidden_size", "d_model", "n_embd", "embed_dim", default=64),
        size=getattr(eyes, "image_size", None),
        side=_number(eyes, "image_size", "img_size", "input_size", "crop_size", default=64),
        channels=_number(eyes, "num_channels", "in_channels", "in_chans", "num_input_channels", default=3),
        patch=_number(eyes, "patch_size", "spatial_patch_size", default=16),
        temporal=_number(eyes, "temporal_patch_size", default=1),
        frames=_number(eyes, "num_frames", "frames_per_clip", default=4),
        mel=_number(
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
        audio_token=_token(config, "audio"),
    )


def guesses(cls: type[nn.Module], config: Any, *, partial: bool = False) -> Iterator[tuple[float, Candidate]]:
    """Yield candidates, best first: every kind of input the signature suggests, with and without labels.

    Args:
        cls: The model class.
        config: Its configuration.
        partial: False for inputs that use all of a model, such as a text with a picture; True for those that leave a
            part of it idle, where a model takes several kinds.
    """
    parameters = inspect.signature(cls.forward).parameters
    facts = read_facts(config)
    for rank, inputs in enumerate(_kinds(parameters, facts, partial)):
        filled = {**inputs, **_required(parameters, inputs, facts)}
        for extra, more in enumerate(_with_targets(cls, parameters, filled, facts)):
            yield RANK_COST * rank + LABEL_COST * extra, tuple({**more, **_switches(parameters)}.items())


def feeds_several(cls: type[nn.Module]) -> bool:
    """Whether a model takes a text and something else beside it."""
    parameters = inspect.signature(cls.forward).parameters
    return "input_ids" in parameters and any(name in parameters for name in (*PICTURE_NAMES, *AUDIO_NAMES))


def _kinds(parameters: Mapping[str, Any], facts: Facts, partial: bool) -> Iterator[dict[str, Guess]]:
    """Yield sets of inputs of one kind each: text, pictures, sound, flat patches, hidden states."""
    text = _text(parameters, facts) if "input_ids" in parameters else {}
    several = bool(text) and any(name in parameters for name in (*PICTURE_NAMES, *AUDIO_NAMES))
    seen = list(_pictures(parameters, facts))
    heard = list(_sounds(parameters, facts))
    if several and not partial:
        for others, token in ((seen, facts.image_token), (heard, facts.audio_token)):
            for other, count in itertools.product(others[:MOST_OTHERS], _placeholder_counts(facts.config)):
                yield {**_with_place(text, token, count, parameters), **other}
        return
    if "past_values" in parameters:
        yield from _series(parameters, facts.config)
    if text:
        yield text
        yield from _codes(text, facts)
        yield {**text, "input_ids": Guess("ids", (BATCH, 2 * TOKENS), high=facts.vocab, low=LOWEST_ID)}
    yield from seen
    yield from heard
    if not text and not seen and not heard:
        yield {}
    first = next((name for name in parameters if name != "self"), "hidden_states")
    if first not in ("input_ids", *PICTURE_NAMES, *AUDIO_NAMES):
        for shape in ((BATCH, TOKENS, facts.width), (BATCH, facts.width), (BATCH, facts.width, TOKENS)):
            yield {first: Guess("float", shape)}


def _series(parameters: Mapping[str, Any], config: Any) -> Iterator[dict[str, Guess]]:
    """Past and future of a time series: one variable with lags and time features, or several cut into patches."""
    past, future = _number(config, "context_length", default=32), _number(config, "prediction_length", default=4)
    if (lags := getattr(config, "lags_sequence", None)) is None:
        variables = _number(config, "num_input_channels", "input_size", default=1)
        known = {"past_values": Guess("float", (BATCH, past, variables))}
        yield (
            {**known, "future_values": Guess("float", (BATCH, future, variables))}
            if "future_values" in parameters
            else known
        )
        yield known
        return
    length, features = past + max(lags), _number(config, "num_time_features", default=1)
    yield {
        "past_values": Guess("float", (BATCH, length)),
        "past_time_features": Guess("float", (BATCH, length, features)),
        "past_observed_mask": Guess("mask", (BATCH, length)),
        "future_values": Guess("float", (BATCH, future)),
        "future_time_features": Guess("float", (BATCH, future, features)),
    }


def _text(parameters: Mapping[str, Any], facts: Facts) -> dict[str, Guess]:
    made = {"input_ids": Guess("ids", (BATCH, TOKENS), high=facts.vocab, low=min(LOWEST_ID, facts.vocab - 1))}
    if "attention_mask" in parameters:
        made["attention_mask"] = Guess("mask", (BATCH, TOKENS))
    if "bbox" in parameters:
        made["bbox"] = Guess("boxes", (BATCH, TOKENS, 4))
    return made


def _codes(text: dict[str, Guess], facts: Facts) -> Iterator[dict[str, Guess]]:
    """Several tokens a moment: one of each code book of a sound, with or without one of a text."""
    books = _number(facts.config, "num_codebooks", "num_quantizers", default=0)
    for count in (books, books + 1) if books else ():
        yield {**text, "input_ids": replace(text["input_ids"], shape=(BATCH, TOKENS, count))}


def _placeholder_counts(config: Any) -> tuple[int, ...]:
    """How many placeholders one picture may take in a text: as the configuration says, or one a patch."""
    return tuple(dict.fromkeys(n for n in (_number(config, *PLACEHOLDER_COUNTS, default=0), GRID * GRID) if n))


def _with_place(
    text: dict[str, Guess], token: int | None, count: int, parameters: Mapping[str, Any]
) -> dict[str, Guess]:
    """Make place in a text for `count` features of something else: by placeholder tokens, or by a mask beside it."""
    if token is not None:
        return _marked(text, token, count)
    mask = next((name for name in PLACE_MASKS if name in parameters), None)
    if mask is None:
        return text
    return {**text, mask: Guess("marks", (BATCH, TOKENS), mark=(0, min(count, TOKENS - 2)))}


def _marked(text: dict[str, Guess], token: int, count: int) -> dict[str, Guess]:
    """Put `count` placeholder tokens into a text."""
    length = TOKENS + count
    return {
        name: Guess(g.kind, (BATCH, length, *g.shape[2:]), g.high, low=g.low, mark=(token, count))
        for name, g in text.items()
    }


def _pictures(parameters: Mapping[str, Any], facts: Facts) -> Iterator[dict[str, Guess]]:
    if "flattened_patches" in parameters:  # each with its row and its column in front
        inside = _number(facts.config, "patch_embed_hidden_size", default=facts.channels * facts.patch**2)
        yield {"flattened_patches": Guess("unit", (BATCH, TOKENS, 2 + inside))}
    grid = next((name for name in GRID_NAMES if name in parameters), None)
    name = next((n for n in PICTURE_NAMES if n in parameters), None)
    if grid is not None:
        flat = name or next((n for n in ("hidden_states", "patches") if n in parameters), None)
        if flat is not None:
            size = facts.channels * facts.temporal * facts.patch**2
            sides = (1, GRID, GRID) if "thw" in grid else (GRID, GRID)
            merged = [n for n in parameters if n in ("merge_sizes", "image_merge_sizes")]
            yield {
                flat: Guess("patches", (BATCH, GRID * GRID, size)),
                grid: Guess("rows", (BATCH,), value=sides),
                **{n: Guess("lengths", (BATCH,), high=2) for n in merged},  # two by two patches become one
            }
    if name is None:
        return
    if "spatial_shapes" in parameters:
        yield {
            name: Guess("float", (BATCH, GRID * GRID, facts.channels * facts.patch**2)),
            "spatial_shapes": Guess("rows", (BATCH,), value=(GRID, GRID)),
            **({m: Guess("mask", (BATCH, GRID * GRID)) for m in ("pixel_attention_mask",) if m in parameters}),
        }
    if "image_sizes" in parameters:
        yield {
            name: Guess("float", (BATCH, facts.channels, facts.side, facts.side)),
            "image_sizes": Guess("rows", (BATCH,), value=(facts.side, facts.side)),
        }
    if isinstance(size := facts.size, list | tuple) and len(set(size)) == 2:  # noqa: PLR2004  # a strip: height and width
        yield {name: Guess("float", (BATCH, facts.channels, *size))}
    channels, side = facts.channels, facts.side
    yield {name: Guess("float", (BATCH, channels, side, side))}
    few = {"image_attention_mask": Guess("mask", (BATCH, TOKENS, 1))} if "image_attention_mask" in parameters else {}
    yield {name: Guess("float", (BATCH, 1, channels, side, side)), **few}
    for other in dict.fromkeys((64, 32, 224)):
        yield {name: Guess("float", (BATCH, channels, other, other))}
    yield {name: Guess("float", (BATCH, facts.frames, channels, side, side))}


def _sounds(parameters: Mapping[str, Any], facts: Facts) -> Iterator[dict[str, Guess]]:
    name = next((n for n in AUDIO_NAMES if n in parameters), None)
    if name is None:
        return
    shapes: list[tuple[int, ...]] = [
        (BATCH, facts.mel, FRAMES),
        (BATCH, FRAMES, facts.mel),
        (BATCH, SAMPLES),
        (BATCH, 1, SAMPLES),
    ]
    if name != "input_features":
        shapes = shapes[2:] + shapes[:2]
    if isinstance(frames := getattr(facts.config, "max_length", None), int) and frames <= MOST_FRAMES:
        shapes.insert(0, (BATCH, frames, facts.mel))  # a spectrogram of a fixed length
    mask = next((n for n in ("input_features_mask", "feature_attention_mask") if n in parameters), None)
    for shape in shapes:
        yield {name: Guess("float", shape)}
    if mask is not None:
        yield {name: Guess("float", (BATCH, facts.mel, FRAMES)), mask: Guess("mask", (BATCH, FRAMES))}
        yield {name: Guess("float", (BATCH, FRAMES, facts.mel)), mask: Guess("mask", (BATCH, FRAMES))}


def _required(parameters: Mapping[str, Any], inputs: Mapping[str, Guess], facts: Facts) -> dict[str, Guess]:
    """Fill parameters without a default, and few usual ones, by their names."""
    made: dict[str, Guess] = {}
    length = next((g.shape[1] for name, g in inputs.items() if name == "input_ids"), TOKENS)
    marked = next((g.mark for name, g in inputs.items() if name == "input_ids"), None)
    if marked is not None and "mm_token_type_ids" in parameters:
        made["mm_token_type_ids"] = Guess("marks", (BATCH, length), mark=marked)
    for name, parameter in parameters.items():
        if name in ("self", *inputs) or parameter.default is not parameter.empty:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        made[name] = named(name, length, facts)
    return made


def _with_targets(
    cls: type[nn.Module], parameters: Mapping[str, Any], inputs: dict[str, Guess], facts: Facts
) -> Iterator[dict[str, Guess]]:
    """Yield the inputs with labels, with a decoder's inputs, and as they are."""
    decoder = {"decoder_input_ids": Guess("ids", (BATCH, DECODER_TOKENS), high=facts.vocab, low=LOWEST_ID)}
    if "labels" in parameters and (labels := _labels(cls.__name__, parameters, inputs, facts)):
        yield {**inputs, "labels": labels}
        if "decoder_input_ids" in parameters:
            yield {**inputs, **decoder, "labels": labels}
    if "return_loss" in parameters:
        yield {**inputs, "return_loss": Guess("constant", value=True)}
    if "decoder_input_ids" in parameters:
        yield {**inputs, **decoder}
    yield inputs


def _labels(name: str, parameters: Mapping[str, Any], inputs: Mapping[str, Guess], facts: Facts) -> Guess | None:
    classes = max(int(getattr(facts.config, "num_labels", 2) or 2), 2)
    if re.search(r"(Image|Sequence|Video|Audio)Class|WithTeacher|XVector", name):
        return Guess("ids", (BATCH,), high=classes)
    picture = next((g for n, g in inputs.items() if n in PICTURE_NAMES), None)
    if "Segmentation" in name and picture is not None:
        return Guess("ids", (BATCH, *picture.shape[-2:]), high=classes)
    if re.search(r"Detection|Depth|Keypoint|Matting|Teacher", name):
        return None
    if "CTC" in name:
        return Guess("ids", (BATCH, 6), high=20, low=LOWEST_ID)
    if getattr(facts.config, "is_encoder_decoder", False) or "decoder_input_ids" in parameters:
        return Guess("ids", (BATCH, DECODER_TOKENS), high=facts.vocab, low=LOWEST_ID)
    text = inputs.get("input_ids")
    high = classes if "TokenClass" in name else facts.vocab
    return Guess("ids", text.shape, high=high, low=min(LOWEST_ID, high - 1)) if text is not None else None


def _switches(parameters: Mapping[str, Any]) -> dict[str, Guess]:
    """Turn caches off: they only cost memory in training."""
    return {"use_cache": Guess("constant", value=False)} if "use_cache" in parameters else {}


def _part(config: Any, words: tuple[str, ...]) -> Any:
    return next((part for key, part in parts_of(config).items() if any(word in key for word in words)), None)


def _token(config: Any, kind: str) -> int | None:
    for owner in (config, *parts_of(config).values()):
        for name in (f"{kind}_token_id", f"{kind}_token_index", f"{kind}_token"):
            if isinstance(value := getattr(owner, name, None), int):
                return value
    return None


def _number(config: Any, *names: str, default: int) -> int:
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
