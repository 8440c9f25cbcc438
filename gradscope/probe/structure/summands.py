"""The tensors that a call of a torch function adds up, taken from its arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from gradscope.probe.structure.operations import operation


def tensors_among(values: tuple[Any, ...]) -> Iterator[torch.Tensor]:
    """Yield the tensors among some arguments, and in tuples and lists among them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            # A parameter without a shape takes part in nothing yet.
            if type(value) is torch.Tensor or not is_lazy(value):
                yield value
        elif isinstance(value, tuple | list):
            yield from tensors_among(tuple(value))


def is_number(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor holds real or complex numbers, not integers or truth values."""
    return tensor.is_floating_point() or tensor.is_complex()


def terms_in(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Return the tensors that are summed, by their position among the autograd node's inputs."""
    if name in {"cat", "concat", "concatenate", "hstack"}:
        items = args[0] if args else kwargs.get("tensors", ())
        return [item for item in items if isinstance(item, torch.Tensor)] if isinstance(items, tuple | list) else []
    if name in {"sum", "mean"}:
        return _stacked(args, kwargs)
    if adds_in_places(name):
        named = [kwargs[key] for key in ("input", "source", "src", "values") if key in kwargs]
        tensors = [item for item in (*args[:1], *args[2:], *named) if isinstance(item, torch.Tensor)]
        return [tensors[0], tensors[-1]] if len(tensors) > 1 else tensors
    named = [kwargs[key] for key in ("input", "other", "end", "tensor1", "tensor2") if key in kwargs]
    return [item for item in (*args, *named) if isinstance(item, torch.Tensor)]


def adds_in_places(name: str) -> bool:
    """Tell whether a function adds (or writes) to some elements of a tensor: the other term is smaller or larger."""
    return name.startswith(("index_", "scatter_"))


def alike(name: str, terms: list[torch.Tensor]) -> bool:
    """Tell whether the terms are of one shape as they enter the sum: scores, biases and losses are not."""
    first, *others = [term.shape for term in terms]
    if adds_in_places(name):
        return True
    if len(terms) == _WITH_FACTORS and name.startswith(("addc", "lerp")):
        return first in others
    if len(terms) == _WITH_FACTORS and name.startswith(_MATRIX_SUMS):
        return len(first) == len(others[0]) and first == (*others[0][:-1], *others[1][-1:])
    return all(shape == first for shape in others)


def _stacked(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    stacked = args[0] if args else kwargs.get("input")
    dim = kwargs.get("dim", kwargs.get("axis")) if len(args) == 1 else args[-1]
    stack = _stack_behind(stacked.grad_fn) if isinstance(stacked, torch.Tensor) else None
    if stack is None or not isinstance(stacked, torch.Tensor):
        return []
    dim = dim[0] if isinstance(dim, tuple | list) and len(dim) == 1 else dim
    saved = getattr(stack, "_saved_dim", None)
    if not isinstance(dim, int) or not isinstance(saved, int) or dim % stacked.dim() != saved % stacked.dim():
        return []
    parts = list(stacked.unbind(dim))
    return parts if len(parts) == len(stack.next_functions) else []


def _stack_behind(node: Any) -> Any:
    """Return the stack (or the tensors of one slice put next to each other) that a node makes, or weighs."""
    if node is not None and operation(node.name()) == "Mul":
        node = next((source for source, _ in node.next_functions if source is not None), None)
    return node if node is not None and operation(node.name()) in {"Stack", "Cat"} else None


_WITH_WEIGHT = 3
"""Arguments of lerp: start, end, weight."""
_WITH_FACTORS = 3
"""Tensors of addcmul and addmm: what is added to, and two that are multiplied."""
_MATRIX_SUMS = ("addmm", "baddbmm", "addbmm", "addmv")
"""Sums of a tensor and a product of matrices."""


def as_added(
    name: str, terms: list[torch.Tensor], i: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> torch.Tensor:
    """Return a term as it enters the sum, after the factor that the addition itself applies."""
    term = terms[i].detach()
    if name == "mean":
        return term / len(terms)
    if name.startswith("lerp"):
        weight = args[-1] if len(args) == _WITH_WEIGHT else kwargs.get("weight", 0.5)
        weight = weight.detach() if isinstance(weight, torch.Tensor) else weight
        return term * (1 - weight) if i == 0 else term * weight
    if name.startswith("addc") and i == 1 and len(terms) == _WITH_FACTORS:
        other = terms[-1].detach()
        product = term * other if name.startswith("addcmul") else term / other
        return _scaled(product, kwargs.get("value", 1))
    if name.startswith(_MATRIX_SUMS) and len(terms) == _WITH_FACTORS:
        if i == 0:
            return _scaled(term, kwargs.get("beta", 1))
        return _scaled(torch.matmul(term, terms[-1].detach()), kwargs.get("alpha", 1)) if i == 1 else term
    return _scaled(term, kwargs.get("alpha", 1)) if i == 1 else term


def _scaled(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    return tensor if factor == 1 else tensor * factor
