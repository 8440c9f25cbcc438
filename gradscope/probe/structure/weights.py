"""Which tensors without a gradient are made of parameters alone: the rounding of a weight is no data.

In training for low precision a layer works with `w + (round(w) - w).detach()` (Bengio 2013, the straight-through
estimator): what was cut off there has no graph, but it comes from the weight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import Parameter

from gradscope.probe.structure.operations import Effect, effect_of, operation
from gradscope.probe.structure.trace import Trace

_MAX_STEPS = 64
"""What rounds a weight is never more operations."""

_ALONG = frozenset({Effect.ADD, Effect.BEND, Effect.HAND_ON, Effect.REDUCE, Effect.SCALE})
"""What is done to a weight before a layer uses it; a part of a table, or copies for all samples, may be data."""
_REPEATING = frozenset({"Expand", "Repeat", "RepeatInterleave", "Tile"})


def keeps_weights(name: str) -> bool:
    """Tell whether an operation leaves a weight what it is."""
    return effect_of(name) in _ALONG and name not in _REPEATING


def is_weight(
    tensor: torch.Tensor, hidden: Mapping[int, Sequence[tuple[int, Trace]]], maker_of: Callable[[torch.Tensor], Any]
) -> bool:
    """Tell whether a tensor is made of parameters alone, by elementwise operations.

    Args:
        tensor: The tensor.
        hidden: What goes into autograd nodes that needs no gradient, by the node's sequence number.
        maker_of: Returns the autograd node or the trace that a tensor comes from.
    """
    if isinstance(tensor, Parameter):
        return True
    maker = maker_of(tensor)
    if maker is None or isinstance(maker, Trace):
        return maker is not None and maker.weight
    stack, seen = [maker], {maker}
    while stack and len(seen) <= _MAX_STEPS:
        node = stack.pop()
        if not _is_of_weights(node, hidden):
            return False
        sources = {source for source, _ in node.next_functions if source is not None}
        stack += sources - seen
        seen |= sources
    return not stack


def _is_of_weights(node: Any, hidden: Mapping[int, Sequence[tuple[int, Trace]]]) -> bool:
    variable = getattr(node, "variable", None)
    if variable is not None:
        return isinstance(variable, Parameter)
    if not keeps_weights(operation(node.name())):
        return False
    return all(trace.weight for _, trace in hidden.get(node._sequence_nr(), ()))
