"""The graph behind the losses of one step: operations in the order in which they ran.

Nodes are autograd nodes, and `Trace` nodes for what ran without gradients but matters (see `additions`). The graph
keeps no tensor; it keeps autograd nodes, so it is dropped before the step's memory is to be freed.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from torch.autograd.function import BackwardCFunction

from gradscope.probe.structure.operations import Effect, effect_of
from gradscope.probe.structure.parametric import parametric_nodes
from gradscope.probe.structure.trace import Trace, shape_of, shown_by

Tensor = tuple[int, int]
"""A tensor of the graph: (node, number of the node's output)."""

_IN_PLACE = frozenset({Effect.BEND, Effect.SCALE, Effect.HAND_ON})
"""What an operation in place on a view can do to the whole tensor; all else joins the view to the rest."""


class _Segment(NamedTuple):
    """A checkpointed segment: the sequence numbers of its node and of the last output, and the node."""

    start: int
    stop: float
    node: Any


class Graph:
    """Operations in execution order, with what each takes in.

    Attributes:
        nodes: Autograd nodes or `Trace` objects.
        names: The operation of each node.
        inputs: For each node the tensors it takes, with their position among the node's inputs.
        sequences: The autograd sequence number of each node (fractional for traces).
        ends: The losses.
        carriers: By trace the output of an opaque autograd node (checkpointing) that carries what it computed.
        tokens: Learned tokens that a block adds to although the data do not go into them; known with `parametric`.
    """

    def __init__(self, in_views: Mapping[int, str]) -> None:
        self.nodes: list[Any] = []
        self.names: list[str] = []
        self.inputs: list[list[tuple[int, int, int]]] = []
        self.sequences: list[float] = []
        self.index: dict[Any, int] = {}
        self.ends: list[int] = []
        self.carriers: dict[Trace, tuple[Any, int]] = {}
        self.tokens: list[int] = []
        self._in_views = in_views
        self._consumers: list[list[tuple[int, int, int]]] | None = None

    # What follows is worked out when asked for: a step whose graph is that of an earlier one never asks.

    @cached_property
    def effects(self) -> list[Effect]:
        """What each does to a stream."""
        return [_effect(node, name, self._in_views) for node, name in zip(self.nodes, self.names, strict=True)]

    @cached_property
    def parametric(self) -> list[bool]:
        """Whether a node's output is computed from parameters alone."""
        known, self.tokens = parametric_nodes(self)
        return known

    @cached_property
    def live(self) -> list[bool]:
        """For each node whether a loss (one of `ends`) is computed from it."""
        live = [False] * len(self.nodes)
        for end in self.ends:
            live[end] = True
        for node in range(len(self.nodes) - 1, -1, -1):
            if live[node]:
                for source, _, _ in self.inputs[node]:
                    live[source] = True
        return live

    @property
    def consumers(self) -> list[list[tuple[int, int, int]]]:
        """For each node who reads it: (consumer, position among its inputs, output number read)."""
        if self._consumers is None:
            self._consumers = [[] for _ in self.nodes]
            for i, inputs in enumerate(self.inputs):
                for source, number, position in inputs:
                    self._consumers[source].append((i, position, number))
        return self._consumers

    def readers(self, tensor: Tensor) -> list[tuple[int, int]]:
        """Return who reads one tensor: (node, position among its inputs)."""
        return [(node, position) for node, position, number in self.consumers[tensor[0]] if number == tensor[1]]

    def leads_to(self, node: int, other: int, most: float = math.inf) -> bool:
        """Tell whether a later operation is computed from an earlier one, seen from no more than `most` operations."""
        stack, seen = [node], {node}
        while stack and len(seen) - len(stack) < most:
            for reader, _, _ in self.consumers[stack.pop()]:
                if reader == other:
                    return True
                if reader < other and reader not in seen:
                    seen.add(reader)
                    stack.append(reader)
        return False

    def shape(self, tensor: Tensor) -> tuple[int, ...] | None:
        """Return a tensor's shape, None where autograd does not say (nested tensors)."""
        return shape_of(self.nodes[tensor[0]], tensor[1])

    def gradient_of(self, tensor: Tensor) -> tuple[Any, int] | None:
        """Return the autograd node, with its output, to which a tensor's gradient comes; None where none does."""
        node = self.nodes[tensor[0]]
        return self.carriers.get(node) if isinstance(node, Trace) else (node, tensor[1])

    def segment_of(self, node: int) -> tuple[int, Any] | None:
        """Return the number and the autograd node of the checkpointed segment that a trace ran in, None for all else.

        The numbers go on where those of the nodes end: a segment's own node is none of the graph's.
        """
        sequence = self.sequences[node]
        place = bisect_left(self._segments, sequence, key=lambda segment: segment.start) - 1
        inside = isinstance(self.nodes[node], Trace) and place >= 0 and sequence <= self._segments[place].stop
        return (len(self.nodes) + place, self._segments[place].node) if inside else None

    @cached_property
    def _segments(self) -> list[_Segment]:
        stops: dict[Any, float] = {}
        for trace, (node, _) in self.carriers.items():
            if isinstance(node, BackwardCFunction):
                stops[node] = max(stops.get(node, 0.0), trace.sequence)
        return sorted(_Segment(node._sequence_nr(), stop, node) for node, stop in stops.items())

    def numbered(self) -> dict[int, Any]:
        """Return all nodes by their number, checkpointed segments included."""
        return dict(enumerate([*self.nodes, *(segment.node for segment in self._segments)]))

    def is_raw(self, node: int) -> bool:
        """Tell whether a node stands for a tensor that no gradient reaches."""
        trace = self.nodes[node]
        return isinstance(trace, Trace) and trace.raw

    def data(self, node: int) -> list[Tensor]:
        """Return what a node takes in apart from parameters and what is computed from them alone."""
        return [(source, number) for source, number, _ in self.inputs[node] if not self.parametric[source]]

    def saved(self, node: int, name: str) -> Any:
        """Return a number (never a tensor) that an operation was given, None where it was given no such thing."""
        shown = shown_by(self.nodes[node])
        return shown.saved.get(name) if isinstance(shown, Trace) else getattr(shown, f"_saved_{name}", None)


def _effect(node: Any, name: str, in_views: Mapping[int, str]) -> Effect:
    if not name and isinstance(node, Trace):
        return Effect.LEAF
    if isinstance(node, BackwardCFunction):
        return Effect.OPAQUE
    if name == "CopySlices":
        inner = effect_of(name if isinstance(node, Trace) else in_views.get(node._sequence_nr(), name))
        return inner if inner in _IN_PLACE else Effect.JOIN
    return effect_of(name)
