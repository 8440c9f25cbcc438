"""What ran without gradients and matters all the same, beside the nodes of autograd."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gradscope.probe.watching.calls import Call

OUTSIDE = -1.0
"""The sequence number of what was there before the forward: parameters and inputs."""


class Trace:
    """An operation that ran without a gradient, or a tensor that needs none.

    Attributes:
        name: The operation as `operations` knows it; "" for a tensor that came from outside.
        inputs: What went in: Trace objects or (node, output number) pairs; None for what is not known.
        sequence: Where it ran: just before the autograd node that had this sequence number next.
        shape: The shape of what came out.
        saved: The numbers it was given, by the names under which autograd saves them.
        call: The module call it ran in.
        raw: No gradient reaches it: neither it nor anything it was computed from needs one.
        stripped: Its raw stand-in, once that was made.
        twin: The autograd node of a repetition that shows what it did (TorchScript).
        weight: It is made of parameters alone, as what rounds a weight in training for low precision is.
    """

    __slots__ = ("call", "inputs", "name", "raw", "saved", "sequence", "shape", "stripped", "twin", "weight")

    def __init__(
        self,
        name: str,
        inputs: tuple[Any, ...],
        sequence: float,
        shape: tuple[int, ...],
        call: Call | None = None,
        twin: Any = None,
        saved: Mapping[str, Any] = MappingProxyType({}),
        *,
        weight: bool = False,
    ) -> None:
        self.weight = weight
        self.call = call
        self.twin = twin
        self.saved = saved
        self.raw: bool = all(isinstance(item, Trace) and item.raw for item in inputs if item is not None)
        self.stripped: Trace | None = None
        self.name = name
        self.inputs = inputs
        self.sequence = sequence
        self.shape = shape

    def without_gradient(self) -> Trace:
        """Return this tensor as one that no gradient reaches."""
        if self.raw:
            return self
        if self.stripped is None:
            self.stripped = Trace("", (), OUTSIDE, self.shape, self.call, weight=self.weight)
        return self.stripped


def shown_by(node: Any) -> Any:
    """Return the autograd node that shows what a node of the graph did: itself, or its twin in a repetition."""
    return node.twin if isinstance(node, Trace) and node.twin is not None else node


def shape_of(node: Any, output_number: int) -> tuple[int, ...] | None:
    """Return the shape of an output of an autograd node or a trace, None where autograd does not say."""
    shown = shown_by(node)
    if isinstance(shown, Trace):
        return shown.shape
    try:
        return tuple(int(size) for size in shown._input_metadata[output_number].shape)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return None


def ran_since(outputs: list[Trace], since: int) -> list[Trace]:
    """Return what led to some traces since an autograd node (a checkpointed segment's own, say), in order.

    Args:
        outputs: The traces.
        since: The sequence number of that node.
    """
    waiting, seen = list(outputs), set(outputs)
    while waiting:
        inputs: list[Any] = [item for item in waiting.pop().inputs if isinstance(item, Trace)]
        inside = {trace for trace in inputs if trace.sequence > since}
        waiting += inside - seen
        seen |= inside
    return sorted(seen, key=lambda trace: trace.sequence)
