"""The tensors that a call of a torch function adds up, taken from its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from gradscope.probe.structure.functions import CONCATENATIONS
from gradscope.probe.structure.operations import operation
from gradscope.probe.structure.trace import Trace


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


def terms_in(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], maker_of: Callable[[torch.Tensor], Any]
) -> list[torch.Tensor]:
    """Return the tensors that are summed, by their position among the autograd node's inputs.

    Args:
        name: The function's name.
        args: What it is given.
        kwargs: What it is given by name.
        maker_of: Returns the autograd node or the trace that a tensor comes from.
    """
    if name in CONCATENATIONS:
        items = args[0] if args else kwargs.get("tensors", ())
        return [item for item in items if isinstance(item, torch.Tensor)] if isinstance(items, tuple | list) else []
    if name in {"sum", "mean"}:
        return _stacked(args, kwargs, maker_of)
    if adds_in_places(name):
        named = [kwargs[key] for key in ("input", "source", "src", "values") if key in kwargs]
        tensors = [item for item in (*args[:1], *args[2:], *named) if isinstance(item, torch.Tensor)]
        return [tensors[0], tensors[-1]] if len(tensors) > 1 else tensors
    named = [kwargs[key] for key in ("input", "other", "end", "tensor1", "tensor2") if key in kwargs]
    return [item for item in (*args, *named) if isinstance(item, torch.Tensor)]


_POSITIONS = {
    "cat": {1: "dim"}, "concat": {1: "dim"}, "concatenate": {1: "dim"}, "index_put": {3: "accumulate"},
    "index_put_": {3: "accumulate"}, "lerp": {2: "weight"}, "lerp_": {2: "weight"}, "mean": {1: "dim"},
    "scatter_reduce": {4: "reduce"}, "scatter_reduce_": {4: "reduce"}, "stack": {1: "dim"}, "sum": {1: "dim"},
}  # fmt: skip
"""Where functions take a number that matters to what they add up; other numbers are given by name."""
_ALONG_THE_FIRST = frozenset({"cat", "concat", "concatenate", "stack"})


def numbers_given(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers that a function was given, by the names under which autograd saves them.

    Example:
        >>> numbers_given("sum", (torch.ones(2), -1), {}), numbers_given("add", (1, 2), {"alpha": 0.5})
        ({'dim': (-1,)}, {'alpha': 0.5})
    """
    if name == "__getitem__":
        return _bracketed(args[1])
    found: dict[str, Any] = {"dim": 0} if name in _ALONG_THE_FIRST else {}
    found |= {key: value for key, value in kwargs.items() if not isinstance(value, torch.Tensor)}
    found |= {key: args[i] for i, key in _POSITIONS.get(name, {}).items() if i < len(args)}
    if name in {"mean", "sum"} and isinstance(found.get("dim"), int):
        found["dim"] = (found["dim"],)
    return found


def _bracketed(key: Any) -> dict[str, Any]:
    """Say which part brackets take where they take one of one axis: `x[t]`, `x[:, 2:4]`, `x[..., 0]`."""
    keys = key if isinstance(key, tuple) else (key,)
    whole = [item is Ellipsis or (isinstance(item, slice) and item == slice(None)) for item in keys]
    if whole.count(False) != 1 or any(item is Ellipsis for item in keys[1:]):
        return {}
    place = whole.index(False)
    dim, item = (place - len(keys) if keys[0] is Ellipsis else place), keys[place]
    if isinstance(item, int) and not isinstance(item, bool):
        return {"dim": dim, "index": item}
    if isinstance(item, slice) and item.step in {None, 1}:
        return {"dim": dim, "start": item.start, "end": item.stop}
    return {}


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


def _stacked(
    args: tuple[Any, ...], kwargs: dict[str, Any], maker_of: Callable[[torch.Tensor], Any]
) -> list[torch.Tensor]:
    stacked = args[0] if args else kwargs.get("input")
    dim = kwargs.get("dim", kwargs.get("axis")) if len(args) == 1 else args[-1]
    stack = _stack_behind(maker_of(stacked)) if isinstance(stacked, torch.Tensor) else None
    if stack is None or not isinstance(stacked, torch.Tensor):
        return []
    dim = dim[0] if isinstance(dim, tuple | list) and len(dim) == 1 else dim
    saved = stack.saved.get("dim") if isinstance(stack, Trace) else getattr(stack, "_saved_dim", None)
    if not isinstance(dim, int) or not isinstance(saved, int) or dim % stacked.dim() != saved % stacked.dim():
        return []
    parts = list(stacked.unbind(dim))
    return parts if len(parts) == len(_sources(stack)) else []


def _stack_behind(node: Any) -> Any:
    """Return the stack (or the tensors of one slice put next to each other) that a node makes, or weighs."""
    if _name_of(node) == "Mul":
        node = next((source for source in _sources(node) if _name_of(source) in _STACKS), None)
    return node if _name_of(node) in _STACKS else None


_STACKS = frozenset({"Stack", "Cat"})


def _name_of(node: Any) -> str:
    return "" if node is None else node.name if isinstance(node, Trace) else operation(node.name())


def _sources(node: Any) -> list[Any]:
    """The nodes and traces that went into one; None for tensors that autograd does not know."""
    if isinstance(node, Trace):
        return [item[0] if isinstance(item, tuple) else item for item in node.inputs]
    return [source for source, _ in node.next_functions]


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
