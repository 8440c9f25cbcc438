"""Where in the module tree each operation of the graph ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gradscope.probe.structure.graph import Graph, Tensor
from gradscope.probe.structure.trace import OUTSIDE, Trace
from gradscope.probe.watching.calls import Call


class Span(NamedTuple):
    """The autograd sequence numbers that were given out during one call."""

    start: int
    stop: int
    call: Call
    returned: tuple[Trace, ...] = ()
    """What stands for the tensors that it returned without a gradient."""


class Places:
    """Who ran what, from the sequence numbers at the beginning and the end of every call.

    Attributes:
        owners: For each node of the graph the innermost call it ran in, None outside of the model.
        returned: For each tensor that calls returned the calls, innermost first.
    """

    def __init__(self, graph: Graph, spans: Sequence[Span]) -> None:
        self.graph = graph
        self.owners = _owners(graph, spans)
        self.returned: dict[Tensor, list[Call]] = {}
        standing = {carrier: graph.index[trace] for trace, carrier in graph.carriers.items()}
        for span in spans:  # in the order in which the calls ended
            for edge in span.call.outputs:
                node = standing.get((edge.node, edge.output_nr), graph.index.get(edge.node))
                if node is not None:
                    self.returned.setdefault((node, edge.output_nr), []).append(span.call)
            for trace in span.returned:
                if trace in graph.index:
                    self.returned.setdefault((graph.index[trace], 0), []).append(span.call)

    def owner(self, node: int) -> Call | None:
        """Return the innermost call a node ran in."""
        return self.owners[node]


def ancestry(call: Call | None) -> list[Call]:
    """Return a call and the calls it ran inside of, innermost first."""
    found = []
    while call is not None:
        found.append(call)
        call = call.parent
    return found


def child_below(call: Call | None, container: Call | None) -> Call | None:
    """Return the call directly inside `container` that leads to `call`; None where `call` is not inside."""
    while call is not None:
        if call.parent is container:
            return call
        call = call.parent
    return None


def _owners(graph: Graph, spans: Sequence[Span]) -> list[Call | None]:
    owners: list[Call | None] = [None] * len(graph.nodes)
    # Of two calls with the same operations the one that ended later is the outer one.
    order = sorted(range(len(spans)), key=lambda i: (spans[i].start, -spans[i].stop, -i))
    ordered = [spans[i] for i in order]
    numbered = sorted((sequence, node) for node, sequence in enumerate(graph.sequences) if sequence > OUTSIDE)
    stack: list[Span] = []
    position = 0
    for sequence, node in numbered:
        while position < len(ordered) and ordered[position].start <= sequence:
            _leave(stack, ordered[position].start)
            stack.append(ordered[position])
            position += 1
        _leave(stack, sequence)
        owners[node] = stack[-1].call if stack else None
        trace = graph.nodes[node]
        if isinstance(trace, Trace) and trace.call is not None:
            owners[node] = trace.call
    return owners


def _leave(stack: list[Span], sequence: float) -> None:
    while stack and stack[-1].stop <= sequence:
        stack.pop()
