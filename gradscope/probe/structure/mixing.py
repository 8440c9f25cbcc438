"""Products of matrices that sum a stack of tensors: what each of the tensors brings to the sum, as it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from gradscope.probe.structure.operations import operation
from gradscope.probe.structure.parts import signed
from gradscope.probe.structure.stacks import CONTRACTED, MAX_STACKED
from gradscope.probe.structure.summands import tensors_among

MIXING = frozenset({"__matmul__", "__rmatmul__", "bmm", "einsum", "matmul", "mm", "mv", "tensordot"})
"""Functions that multiply matrices."""

_RESHAPES = frozenset({"Permute", "Squeeze", "Transpose", "UnsafeView", "View"})


class Stack(NamedTuple):
    """Tensors put next to each other along an axis of their own, as a function is given them.

    Attributes:
        tensor: All of them.
        dim: The axis.
        size: How many there are.
    """

    tensor: torch.Tensor
    dim: int
    size: int


def stack_among(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Stack | None:
    """Return the argument that is a stack of a few tensors, None where there is none."""
    for tensor in tensors_among((args, tuple(kwargs.values())) if kwargs else args):
        node = tensor.grad_fn
        if node is not None and node.name() == "StackBackward0" and 1 < len(node.next_functions) <= MAX_STACKED:
            dim: int = getattr(node, "_saved_dim")  # noqa: B009 - autograd's classes declare no attributes
            return Stack(tensor, signed(dim), len(node.next_functions))
    return None


def weighed(
    function: Callable[..., Any], stack: Stack, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[torch.Tensor]:
    """Return what a product makes of each tensor of a stack alone: its sum is linear in them."""
    rank = stack.tensor.dim()
    found = []
    with torch.no_grad():
        for i in range(stack.size):
            mask = torch.zeros(stack.size, dtype=stack.tensor.dtype, device=stack.tensor.device)
            mask[i] = 1
            one = stack.tensor * mask.view([-1 if axis == stack.dim % rank else 1 for axis in range(rank)])
            found.append(function(*_instead(args, stack.tensor, one), **_instead(kwargs, stack.tensor, one)))
    return found


def _instead(value: Any, old: torch.Tensor, new: torch.Tensor) -> Any:
    """Return arguments with one tensor put in the place of another."""
    if value is old:
        return new
    if isinstance(value, dict):
        return {key: _instead(item, old, new) for key, item in value.items()}
    return type(value)(_instead(item, old, new) for item in value) if type(value) in {list, tuple} else value


def product_sequence(result: torch.Tensor) -> int | None:
    """Return the autograd sequence number of the product behind a function's result, None where it is none."""
    node = result.grad_fn
    while node is not None and operation(node.name()) in _RESHAPES:
        node = node.next_functions[0][0]
    return None if node is None or operation(node.name()) not in CONTRACTED else node._sequence_nr()
