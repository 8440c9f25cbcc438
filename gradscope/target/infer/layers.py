"""What a layer wants as its input, read off its own attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from torch import nn

from gradscope.target.infer.guess import BATCH, Guess

TOKENS = 16
"""Length of sequences that nothing else settles."""
SIDES = (32, 64, 224, 28, 96, 128, 256, 48, 16, 299, 112, 384, 8)
"""Sides of pictures to try, most usual for small models first."""
SIGNAL = 1024
"""Samples of a one-dimensional signal, enough for a stack of strided convolutions."""
VOLUME = 32
"""Side of a volume, in voxels."""
DEFAULT_CHANNELS, LAZY_WIDTH = 3, 64
"""Channels of a picture, and width of a vector, where a lazy layer takes any."""


def wanted_by(module: nn.Module) -> Iterator[Guess]:
    """Yield inputs that a layer without children takes, most usual first; nothing where any input will do."""
    for kind, wanted in WANTED:
        if isinstance(module, kind):  # a size may have been computed with tensors
            yield from (replace(guess, shape=tuple(int(dim) for dim in guess.shape)) for guess in wanted(module))
            return
    yield from _by_attributes(module)


def pictures(ndim: int, channels: int, side: int) -> Guess:
    """Return a batch of `ndim`-dimensional pictures."""
    return Guess("float", (BATCH, channels, *[side] * ndim))


def _pictures(ndim: int, channels: int) -> Iterator[Guess]:
    if ndim == 2:  # noqa: PLR2004  # ordinary pictures
        yield from (pictures(2, channels, side) for side in SIDES)
    else:
        yield pictures(ndim, channels, SIGNAL if ndim == 1 else VOLUME)
        yield pictures(ndim, channels, 128 if ndim == 1 else 16)


def _ndim_of(conv: nn.modules.conv._ConvNd) -> int:
    return len(conv.kernel_size)


def _channels_of(conv: nn.modules.conv._ConvNd) -> int:
    return conv.in_channels or DEFAULT_CHANNELS  # a lazy convolution takes any


def _normed(module: nn.modules.batchnorm._NormBase) -> Iterator[Guess]:
    name, channels = type(module).__name__, module.num_features or LAZY_WIDTH
    ndim = next((n for n in (1, 2, 3) if f"{n}d" in name), 2)
    if ndim == 1:
        yield Guess("float", (BATCH, channels))
        yield Guess("float", (BATCH, channels, TOKENS))
    else:
        yield from _pictures(ndim, channels)


def _ids(module: nn.Embedding | nn.EmbeddingBag) -> Iterator[Guess]:
    yield Guess("ids", (BATCH, TOKENS), high=module.num_embeddings)
    yield Guess("ids", (BATCH,), high=module.num_embeddings)


def _features(width: int) -> Iterator[Guess]:
    yield Guess("float", (BATCH, width))
    yield Guess("float", (BATCH, TOKENS, width))


def _sequences(width: int) -> Iterator[Guess]:
    yield Guess("float", (BATCH, TOKENS, width))


def _layer_norm(module: nn.LayerNorm) -> Iterator[Guess]:
    sizes = tuple(module.normalized_shape)
    if len(sizes) == 1:
        yield Guess("float", (BATCH, TOKENS, *sizes))
    yield Guess("float", (BATCH, *sizes))


def _by_attributes(module: nn.Module) -> Iterator[Guess]:
    """A layer of the user's own that is shaped like a usual one: in_features, num_embeddings, in_channels."""
    for name in ("num_embeddings", "vocab_size", "n_vocab"):
        if isinstance(value := getattr(module, name, None), int):
            yield Guess("ids", (BATCH, TOKENS), high=value)
    for name in ("in_features", "input_size", "input_dim", "in_dim", "d_model", "embed_dim", "dim"):
        if isinstance(value := getattr(module, name, None), int):
            yield Guess("float", (BATCH, value))
            yield Guess("float", (BATCH, TOKENS, value))
    if isinstance(value := getattr(module, "in_channels", None), int):
        yield from _pictures(2, value)
    for parameter in module.parameters(recurse=False):
        if not isinstance(parameter, nn.parameter.UninitializedParameter) and parameter.dim() == 2:  # noqa: PLR2004  # a matrix
            yield Guess("float", (BATCH, parameter.shape[1]))
            yield Guess("float", (BATCH, parameter.shape[0]))


WANTED: tuple[tuple[Any, Callable[[Any], Iterator[Guess]]], ...] = (
    (nn.Embedding | nn.EmbeddingBag, _ids),
    (nn.modules.conv._ConvNd, lambda m: _pictures(_ndim_of(m), _channels_of(m))),
    (nn.LazyLinear, lambda m: _features(LAZY_WIDTH)),
    (nn.Linear, lambda m: _features(m.in_features)),
    (nn.Bilinear, lambda m: _features(m.in1_features)),
    (nn.RNNBase, lambda m: _sequences(m.input_size)),
    (nn.RNNCellBase, lambda m: iter([Guess("float", (BATCH, m.input_size))])),
    (nn.LayerNorm, _layer_norm),
    (nn.RMSNorm, _layer_norm),
    (nn.MultiheadAttention, lambda m: _sequences(m.embed_dim)),
    (nn.modules.batchnorm._NormBase, _normed),
    (nn.GroupNorm, lambda m: _pictures(2, m.num_channels)),
)
"""What each kind of layer wants; the first that fits counts."""
