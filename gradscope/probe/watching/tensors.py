"""The tensors inside whatever a module takes or returns, and their places in the autograd graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.graph import Node, get_gradient_edge

_MAX_NESTING = 6
"""Levels of lists, dicts and objects in which tensors are looked for."""
_MOST_SHAPES = 4
"""Tensors of a batch that one line of a report has room for."""
_PLAIN = (str, bytes, int, float, bool, complex, type(None), nn.Module, torch.dtype, torch.device)
"""What holds no tensor that went in or came out."""


class Edge(NamedTuple):
    """A tensor's place in the autograd graph: output number `output_nr` of `node`."""

    node: Node
    output_nr: int


def tensors_in(value: Any, *, attributes: bool = True) -> Iterator[torch.Tensor]:
    """Yield every tensor in a nested value, each object once: containers, dataclasses and (optionally) attributes.

    Example:
        >>> [t.shape[0] for t in tensors_in({"a": torch.zeros(1), "b": (torch.zeros(2), None)})]
        [1, 2]
    """
    if isinstance(value, torch.Tensor):
        yield value
    elif not isinstance(value, _PLAIN):
        yield from _walk(value, attributes, 0, set())


def listed(value: Any) -> list[torch.Tensor]:
    """Return every tensor in a nested value; quickly where it is a tensor itself."""
    if isinstance(value, torch.Tensor):
        return [value]
    return list(tensors_in(value))


def _walk(value: Any, attributes: bool, depth: int, seen: set[int]) -> Iterator[torch.Tensor]:
    if depth > _MAX_NESTING or id(value) in seen or isinstance(value, _PLAIN):
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value
        return
    for item in _members(value, attributes):
        if isinstance(item, torch.Tensor) and id(item) not in seen:
            seen.add(id(item))
            yield item
        else:
            yield from _walk(item, attributes, depth + 1, seen)


def _members(value: Any, attributes: bool) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    # A generator or an iterator must not be consumed; a class or a function holds no output.
    if attributes and not isinstance(value, type) and not callable(value):
        return list(getattr(value, "__dict__", {}).values())
    return []


def differentiable(tensor: torch.Tensor) -> bool:
    """Tell whether a gradient can arrive at this tensor."""
    return tensor.requires_grad


def edge_of(tensor: torch.Tensor) -> Edge:
    """Return the gradient edge of a tensor that requires grad; that of its accumulator for a leaf."""
    node = tensor.grad_fn
    if node is not None:
        return Edge(node, tensor.output_nr)
    # A view of a leaf that was taken under no_grad says that it requires grad, but has no place in the graph. A view of
    # plain data that was told to require grad is a leaf itself.
    base = tensor._base
    edge = get_gradient_edge(base if base is not None and base.requires_grad else tensor)
    return Edge(edge.node, edge.output_nr)


def inside_transform() -> bool:
    """Tell whether a functorch transform (vmap, grad, jvp) or `torch.jit.trace` runs: values must not be read."""
    return torch._C._functorch.peek_interpreter_stack() is not None or torch._C._get_tracing_state() is not None


def num_elements(tensor: torch.Tensor) -> int:
    """Return how many numbers a tensor holds, also where its shape is ragged."""
    if tensor.is_nested and tensor.layout is torch.jagged:
        return tensor.values().numel()
    return tensor.numel()


def shapes_in(value: Any) -> str:
    """Describe the tensors in a batch, such as "8x128 int64, 8 int64".

    Example:
        >>> shapes_in({"ids": torch.zeros(8, 128, dtype=torch.int64), "scale": torch.tensor(1.0)})
        '8x128 int64, scalar float32'
    """
    shown = [
        f"{'ragged' if t.is_nested else 'x'.join(map(str, t.shape)) or 'scalar'} {str(t.dtype).removeprefix('torch.')}"
        for t in tensors_in(value)
    ]
    return ", ".join(shown[:_MOST_SHAPES]) + (", …" if len(shown) > _MOST_SHAPES else "")
