"""Where the gradients of a residual addition can be read in the graph: which inputs of which nodes."""

from __future__ import annotations

from dataclasses import dataclass

from gradscope.probe.dominance import Dominators
from gradscope.probe.graph import Graph, Trace
from gradscope.probe.residual import Residual

Place = tuple[int, int]
"""A node of the graph and the position of one of its inputs."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to listen to for one site; numbers are nodes of the graph.

    Attributes:
        node: The sum.
        skip: The last operation of the skip and which of its inputs is the stream; None where that cannot be told.
        branch: The branch's own readers of the stream; empty where they cannot be listened to.
        inexact: Why the gradient through the branch holds more than the branch's, None where it is exact.
    """

    node: int
    skip: Place | None
    branch: tuple[Place, ...]
    inexact: str | None = None


def plan_of(graph: Graph, residual: Residual, dominators: Dominators) -> Plan | None:
    """Find where the gradients of a residual addition pass; None for one that ran without a graph."""
    if isinstance(graph.nodes[residual.node], Trace):
        return None
    skip = _skip(graph, residual, dominators)
    readers = tuple((node, place) for node, place in residual.region.readers if (node, place) != skip)
    if isinstance(graph.nodes[residual.join[0]], Trace) or any(
        isinstance(graph.nodes[node], Trace) for node, _ in readers
    ):
        return Plan(residual.node, None, (), "the stream needs no gradient there, or ran without a graph")
    return Plan(residual.node, skip, readers, _leak(graph, residual, dominators))


def _skip(graph: Graph, residual: Residual, dominators: Dominators) -> Place | None:
    """The reader of the join on the skip, where each tensor on the way goes nowhere else."""
    link = residual.link.previous
    reader = _adder(graph, residual) if link is None else link.tensor[0]
    while link is not None:
        readers = [node for node, _ in graph.readers(link.tensor) if dominators.reaches(node)]
        if len(readers) > 1:
            return None
        link = link.previous
    if isinstance(graph.nodes[reader], Trace):
        return None
    places = [position for source, number, position in graph.inputs[reader] if (source, number) == residual.join]
    if link is None and residual.link.previous is None and residual.skip.position in places:
        return (reader, residual.skip.position)
    return (reader, places[0]) if places else None


def _adder(graph: Graph, residual: Residual) -> int:
    """The node whose inputs are the terms: the sum itself, or the stack that is summed."""
    if graph.names[residual.node] == "Sum":
        return graph.inputs[residual.node][0][0]
    return residual.node


def _leak(graph: Graph, residual: Residual, dominators: Dominators) -> str | None:
    inside = set(residual.region.nodes)
    inside |= {residual.node, _adder(graph, residual)}
    for node in residual.region.nodes:
        for reader, _, _ in graph.consumers[node]:
            if reader not in inside and dominators.reaches(reader):
                return "a tensor of the branch is used elsewhere as well"
    return None
