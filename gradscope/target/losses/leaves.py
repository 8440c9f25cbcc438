"""The tensors in a model's output, whatever it is nested in."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

MOST_NESTING = 8
"""Levels of lists, dicts and objects in which tensors are looked for."""


def named_tensors(output: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor with its path in the output, such as ``logits`` or ``1.hidden``."""
    if isinstance(output, torch.Tensor):
        yield name, output
    elif depth < MOST_NESTING:
        for key, value in _items(output):
            yield from named_tensors(value, f"{name}.{key}" if name else str(key), depth + 1)


def differentiable(output: Any) -> dict[str, torch.Tensor]:
    """Return the floating or complex tensors that need a gradient, by path; a repeated object only once."""
    found: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, tensor in named_tensors(output):
        if tensor.requires_grad and tensor.numel() and id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = tensor
    return found


def _items(output: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(output, Mapping):
        yield from output.items()
    elif isinstance(output, tuple) and hasattr(output, "_fields"):
        yield from zip(output._fields, output, strict=True)
    elif isinstance(output, list | tuple):
        yield from enumerate(output)
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        yield from ((field.name, getattr(output, field.name)) for field in dataclasses.fields(output))
    elif hasattr(output, "__dict__") and not isinstance(output, type | torch.nn.Module) and not callable(output):
        yield from vars(output).items()
