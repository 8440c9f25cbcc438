"""Numbers that a model tells about itself: in its layers, its attributes and its configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from gradscope.target.infer.documented import documented
from gradscope.target.infer.roles import Hints

CONFIG_NAMES = ("config", "cfg", "conf", "args", "hparams", "params", "model_args")
LENGTH_NAMES = (
    "block_size",
    "max_seq_len",
    "max_len",
    "seq_len",
    "max_length",
    "context_length",
    "max_seq_length",
    "n_ctx",
    "ctx_len",
    "max_position_embeddings",
    "sequence_length",
    "seq_length",
    "n_positions",
    "num_tokens",
    "maxlen",
    "window_size",
)
SIDE_NAMES = ("img_size", "image_size", "input_size", "img_dim", "resolution", "input_resolution", "image_dim")
CHANNEL_NAMES = (
    "in_channels",
    "in_chans",
    "channels",
    "num_channels",
    "n_channels",
    "img_channels",
    "input_channels",
    "in_ch",
)
VOCAB_NAMES = (
    "vocab_size",
    "n_vocab",
    "num_tokens",
    "n_tokens",
    "num_embeddings",
    "vocab",
    "ntoken",
    "input_vocab_size",
)
UNLIMITED = 10**6
"""Length (tokens) of what a model takes that tells of no limit."""


def read_hints(model: nn.Module) -> Hints:
    """Gather what a model tells about its vocabulary, width, length, channels, picture side and classes."""
    embeddings = [m for m in model.modules() if isinstance(m, nn.Embedding)]
    convolutions = [m for m in model.modules() if isinstance(m, nn.modules.conv._ConvNd)]
    linears = [m for m in model.modules() if isinstance(m, nn.Linear) and not isinstance(m, nn.LazyLinear)]
    widths = Counter([int(m.in_features) for m in linears] + [m.embedding_dim for m in embeddings])
    told = _told(model)
    hints = Hints(
        vocab=_first(told, VOCAB_NAMES) or max((m.num_embeddings for m in embeddings), default=0),
        width=widths.most_common(1)[0][0] if widths else 0,
        length=_first(told, LENGTH_NAMES) or UNLIMITED,
        channels=convolutions[0].in_channels if convolutions else _first(told, CHANNEL_NAMES),
        side=_first(told, SIDE_NAMES),
        classes=linears[-1].out_features if linears else 0,
    )
    sizes = {**told, **{name: getattr(hints, name) for name in ("vocab", "width", "channels", "side", "tokens")}}
    return replace(hints, sizes=sizes, documented=documented(model.forward, sizes))


def _told(model: nn.Module) -> dict[str, int]:
    """Whole numbers among the attributes of the model, its children and their configurations; outer ones win."""
    told: dict[str, int] = {}
    for module in (model, *model.children()):
        for owner in (module, *(getattr(module, name, None) for name in CONFIG_NAMES)):
            items = owner.items() if isinstance(owner, Mapping) else _attributes(owner)
            for key, value in items:
                number = (
                    value[0] if isinstance(value, tuple | list) and value and len(set(map(str, value))) == 1 else value
                )
                if isinstance(number, int) and not isinstance(number, bool) and number > 0:
                    told.setdefault(str(key).lower(), number)
    return told


def _attributes(owner: Any) -> list[tuple[str, Any]]:
    try:
        return [(key, value) for key, value in vars(owner).items() if not key.startswith("_")]
    except TypeError:
        return []


def _first(told: dict[str, int], names: tuple[str, ...]) -> int:
    return next((told[name] for name in names if name in told), 0)
