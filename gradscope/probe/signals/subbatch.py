"""A part of a batch of any nesting, for measurements that take passes of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor


def batch_size(batch: Any) -> int | None:
    """Return the length that the batch's tensors share on axis 0 (of its first tensor where they differ); None without.

    Example:
        >>> batch_size({"ids": torch.zeros(8, 5), "mask": torch.zeros(8, 5)})
        8
    """
    sizes = [tensor.shape[0] for tensor in _tensors(batch) if tensor.dim() > 0]
    return sizes[0] if sizes else None


def part(batch: Any, start: int, stop: int) -> Any:
    """Return the samples from ``start`` to ``stop`` of every tensor that has the batch's size on axis 0.

    Example:
        >>> [t.shape[0] for t in part((torch.zeros(8, 3), torch.zeros(8), torch.zeros(3)), 0, 2)]
        [2, 2, 3]
    """
    size = batch_size(batch)

    def cut(tensor: Tensor) -> Tensor:
        return tensor[start:stop] if tensor.dim() > 0 and tensor.shape[0] == size else tensor

    return mapped(batch, cut)


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return a nested value with every tensor changed; containers of other kinds are kept as they are."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(item, change) for item in value))
    if isinstance(value, tuple | list):
        return type(value)(mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, Mapping) and hasattr(value, "to"):  # a batch encoding: keep its class, replace its tensors
        return {key: mapped(item, change) for key, item in value.items()}
    return value


def fresh(batch: Any) -> Any:
    """Return a copy of a batch that the model may change in place without harm to the user's."""
    return mapped(batch, lambda tensor: tensor.detach().clone().requires_grad_(tensor.requires_grad))


def _tensors(value: Any) -> list[Tensor]:
    found: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    mapped(value, keep)
    return [tensor for tensor in found if tensor.layout is torch.strided]
