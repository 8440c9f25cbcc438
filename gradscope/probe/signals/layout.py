"""Which axis of an activation is the sample, the token and the unit, read off the model's own layers.

Shapes: B samples, T tokens, D features, C channels, H x W positions.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor, nn

_CHANNELS_FIRST = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip
_SEQUENCE_DIMS = 3  # (B, T, D) or (B, C, T)
_IMAGE_DIMS = 4  # (B, C, H, W) or (B, H, W, D)
RUN = 4
"""Neighbours that are looked at together where a tensor is represented by some of its elements."""


class Layout:
    """The sizes that a model's layers give to channels (axis 1) and to features (last axis)."""

    def __init__(self, model: nn.Module) -> None:
        channels: set[int] = set()
        features: set[int] = set()
        sequence_first = False
        for module in model.modules():
            if isinstance(module, _CHANNELS_FIRST):
                channels |= {module.out_channels}
            elif isinstance(module, nn.Linear):
                features |= {module.in_features, module.out_features}
            elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
                features |= {module.normalized_shape[-1]}
            elif isinstance(module, nn.Embedding):
                features |= {module.embedding_dim}
            elif isinstance(module, nn.RNNBase):
                features |= {module.hidden_size}
                sequence_first |= not module.batch_first
            elif isinstance(module, nn.MultiheadAttention):
                features |= {module.embed_dim}
                sequence_first |= not module.batch_first
        self._channels = frozenset(channels)
        self._features = frozenset(features)
        self._sequence_first = sequence_first

    def channels_first(self, shape: tuple[int, ...]) -> bool:
        """Say whether axis 1 of an activation of this shape holds the units."""
        if len(shape) < _SEQUENCE_DIMS:
            return False
        if shape[-1] in self._features and shape[1] not in self._channels:
            return False
        return shape[1] in self._channels or len(shape) >= _IMAGE_DIMS

    def unit_axis(self, shape: tuple[int, ...]) -> int:
        """Return the axis of the units (features or channels)."""
        return 1 if self.channels_first(shape) else len(shape) - 1

    def tokens(self, x: Tensor) -> Tensor | None:
        """View an activation as (B, T, D); None where it has no tokens (vectors, images, channel-first sequences)."""
        shape = tuple(x.shape)
        if len(shape) == _SEQUENCE_DIMS and not self.channels_first(shape):
            return x.transpose(0, 1) if self._sequence_first else x
        if len(shape) == _IMAGE_DIMS and not self.channels_first(shape):
            return x.flatten(1, 2)  # windowed Transformers keep (B, H, W, D)
        return None

    def samples(self, x: Tensor) -> Tensor:
        """View an activation with the samples on axis 0."""
        if x.dim() == _SEQUENCE_DIMS and self._sequence_first and not self.channels_first(tuple(x.shape)):
            return x.transpose(0, 1)
        return x


def thinned(x: Tensor, max_elements: int, kept_axes: tuple[int, ...] = ()) -> Tensor:
    """View every k-th entry of the longest axes, until at most ``max_elements`` are left.

    A view without a copy, whatever the strides; axes in ``kept_axes`` stay whole (the result may then be larger).
    """
    return x if x.numel() <= max_elements else x[_steps(tuple(x.shape), max_elements, kept_axes)]


def spread(x: Tensor, max_elements: int) -> Tensor:
    """Copy at most ``max_elements`` elements, evenly spread over the tensor, as one row."""
    return spread_view(x, max_elements).clone(memory_format=torch.contiguous_format).view(-1)


def spread_view(x: Tensor, max_elements: int) -> Tensor:
    """View (or, where its strides allow no view, copy) what ``spread`` copies.

    Of a large dense tensor these are short runs at equal distances in memory, exactly ``max_elements`` in all: what is
    not in a cache arrives in lines of 16 numbers, and a line for every number would be most of the cost.
    """
    x = x.detach() if x.requires_grad else x
    runs = _runs(x.shape, max_elements)
    if runs is None:
        return x.reshape(-1)
    if runs[1][0] < RUN or not (x.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(x)):
        return thinned(x, max_elements).reshape(-1)
    return x.as_strided(*runs)


def spread_rows(x_SN: Tensor, max_elements: int) -> Tensor:
    """Return of each of S stacked tensors what ``spread`` would copy, as (S, at most ``max_elements``)."""
    num_rows = len(x_SN)
    runs = _runs(x_SN.shape[1:], max_elements)
    if runs is None:
        return x_SN.reshape(num_rows, -1)
    (count, length), (step, _) = runs
    if step < RUN:
        return torch.stack([spread(x, max_elements) for x in x_SN])
    return x_SN.as_strided((num_rows, count, length), (x_SN.stride(0), step, 1)).reshape(num_rows, -1)


@lru_cache(maxsize=1024)
def _runs(shape: torch.Size, max_elements: int) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return size and stride of the runs in a dense tensor, None for one that is looked at as a whole."""
    count = shape.numel()
    if count <= max_elements:
        return None
    num_runs = max_elements // RUN
    return (num_runs, RUN), (_distance(count // num_runs, shape[-1]), 1)


def spread_alike(x: Tensor, y: Tensor, max_elements: int) -> tuple[Tensor, Tensor]:
    """Copy the same elements, by index, of two tensors of one shape."""
    if x.stride() == y.stride():
        return spread(x, max_elements), spread(y, max_elements)
    both = (thinned(tensor.detach(), max_elements) for tensor in (x, y))
    one, other = (tensor.clone(memory_format=torch.contiguous_format).view(-1) for tensor in both)
    return one, other


def _distance(longest: int, width: int) -> int:
    """Return the largest distance that shares no factor with the last axis, so that all features are come by."""
    return next((step for step in range(longest, 1, -1) if math.gcd(step, width) == 1), 1)


@lru_cache(maxsize=1024)
def _steps(shape: tuple[int, ...], max_elements: int, kept_axes: tuple[int, ...]) -> tuple[slice, ...]:
    steps = [1] * len(shape)
    sizes = list(shape)
    while math.prod(sizes) > max_elements:
        axis = max((a for a in range(len(shape)) if a not in kept_axes), key=lambda a: sizes[a], default=None)
        if axis is None or sizes[axis] <= 1:
            break
        # Odd steps from 1 up: 3 after 1, then 5 ... so that no power-of-two pattern of heads or pixels is followed.
        steps[axis] += 2
        sizes[axis] = -(-shape[axis] // steps[axis])
    return tuple(slice(None, None, step) for step in steps)
