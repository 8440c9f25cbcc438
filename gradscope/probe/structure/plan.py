"""Where the gradients of a residual addition can be read in the graph: which inputs of which nodes."""

from __future__ import annotations

from dataclasses import dataclass

from gradscope.probe.structure.chain import Link
from gradscope.probe.structure.dominance import Dominators
from gradscope.probe.structure.graph import Graph, Tensor
from gradscope.probe.structure.residual import Residual
from gradscope.probe.structure.trace import Trace

Place = tuple[int, int]
"""A node of the graph and the position of one of its inputs."""

_MAX_SHARED = 4
"""A beginning that two branches share (a norm, a cast) is never longer."""


_MAX_READERS = 64
"""The gradients of so many readers are added up for a branch; to listen to every block at every block is quadratic."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to listen to for one site; numbers are nodes of the graph.

    Attributes:
        node: The sum.
        skip: The last operation of the skip and which of its inputs is the stream; None where that cannot be told.
        branch: The branch's own readers of the stream (or of what its shared beginning makes of it); empty where they
            cannot be listened to.
        shared: Operations between the stream and those readers that serve other branches too (the norm of a parallel
            block), the last one first: the branch's gradient is sent through them on its own.
        inexact: Why the branch's gradient cannot be told from others', None where it can.
        apart: Skip and branch begin at different parts of the stream, so that their gradients cannot be compared.
    """

    node: int
    skip: Place | None
    branch: tuple[Place, ...]
    shared: tuple[Place, ...] = ()
    inexact: str | None = None
    apart: bool = False

    @property
    def places(self) -> list[int]:
        """All nodes that are listened to."""
        skip = () if self.skip is None else (self.skip,)
        return [self.node, *(node for node, _ in (*skip, *self.branch, *self.shared))]


def plan_of(graph: Graph, residual: Residual, dominators: Dominators) -> Plan | None:
    """Find where the gradients of a residual addition pass; None for one that ran without a graph."""
    if isinstance(graph.nodes[residual.node], Trace):
        return None
    skip = _skip(graph, residual, dominators)
    if residual.region.blocks and len(graph.readers(residual.join)) > _MAX_READERS:
        return Plan(residual.node, skip, (), (), "a tensor that is fed to block after block is read too often")
    gating = residual.gating
    if gating is None:
        return Plan(residual.node, skip, (), (), "a gate of the skip is computed by too many operations")
    begin = _begin(graph, residual, gating)
    shared, readers = _readers(graph, residual, dominators, gating, begin)
    readers = tuple(place for place in readers if place != skip)
    readers = _carried(graph, begin, readers)
    traced = any(node < len(graph.nodes) and isinstance(graph.nodes[node], Trace) for node, _ in (*readers, *shared))
    if traced or graph.gradient_of(residual.join) is None:
        return Plan(residual.node, None, (), (), "the stream needs no gradient there, or ran without a graph")
    within = {node for node, _ in shared}
    apart = begin != _on_skip(graph, residual)[0].tensor
    if _leaks(graph, residual, dominators, within, gating, begin):
        return Plan(residual.node, skip, (), (), "a tensor of the branch is used elsewhere as well", apart=apart)
    return Plan(residual.node, skip, readers, shared, apart=apart)


def _skip(graph: Graph, residual: Residual, dominators: Dominators) -> Place | None:
    """The reader of the join on the skip, where each tensor on the way goes nowhere else.

    Of a split the reader of the skip's own part: the split itself sends back what comes to the other parts as well.
    """
    link = residual.link.previous
    passed = [(node, 0) for node in residual.skip.passed]
    while link is not None:
        passed.append(link.tensor)
        link = link.previous
    if any(sum(dominators.reaches(node) for node, _ in graph.readers(tensor)) > 1 for tensor in passed):
        return None
    start, following = _on_skip(graph, residual)
    adder = (*residual.skip.passed, residual.node)[0]  # a stack that is summed, or the sum itself
    reader = adder if following is None else following.tensor[0]
    places = _places(graph, reader, start.tensor)
    if following is None and residual.skip.position in places:
        return (reader, residual.skip.position)
    return (reader, places[0]) if places else None


def _on_skip(graph: Graph, residual: Residual) -> tuple[Link, Link | None]:
    """Where a skip begins, past splits, and what is next to it on the way to the sum."""
    start = residual.link
    while start.previous is not None and _is_divided(graph, start.previous.tensor[0]):
        start = start.previous
    return start, start.previous


def _begin(graph: Graph, residual: Residual, gating: frozenset[int]) -> Tensor:
    """Where a branch begins: at the stream, or at the one part of it that the branch reads of a split."""
    readers = residual.region.readers
    if len(readers) == 1 and _is_divided(graph, readers[0][0]):
        node = readers[0][0]
        own = residual.region.members | gating
        numbers = {number for reader, _, number in graph.consumers[node] if reader in own}
        if len(numbers) == 1:
            return node, numbers.pop()
    return residual.join


def _is_divided(graph: Graph, node: int) -> bool:
    """Tell whether several outputs of an operation are used."""
    return len({number for _, _, number in graph.consumers[node]}) > 1


def _readers(
    graph: Graph, residual: Residual, dominators: Dominators, gating: frozenset[int], begin: Tensor
) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    """Step over operations at the branch's beginning whose output is read by others too."""
    inside = residual.inside

    def own(tensor: Tensor) -> list[Place]:
        apart = gating - residual.region.members
        return residual.region.readers_of(tensor) + [place for place in graph.readers(tensor) if place[0] in apart]

    shared: list[Place] = []
    tensor = begin
    readers = own(tensor)
    while len(readers) == 1 and len(shared) < _MAX_SHARED:
        node = readers[0][0]
        outputs = {number for _, _, number in graph.consumers[node]}
        others = any(n not in inside and dominators.reaches(n) for n, _, _ in graph.consumers[node])
        if not others or outputs != {0} or node not in residual.region.members | gating:
            break
        shared.insert(0, readers[0])
        tensor = (node, 0)
        readers = own(tensor)
    return tuple(shared), tuple(readers)


def _carried(graph: Graph, begin: Tensor, readers: tuple[Place, ...]) -> tuple[Place, ...]:
    """Put the checkpointed segment in the place of readers inside of it, where it reads the stream for no one else."""
    source = graph.gradient_of(begin)
    others = set(graph.readers(begin)) - set(readers)
    found: dict[Place, None] = {}
    for place in readers:
        segment = graph.segment_of(place[0])
        inputs: list[Place] = []
        if segment is not None and all(graph.segment_of(node) != segment for node, _ in others):
            inputs = [(segment[0], i) for i, edge in enumerate(segment[1].next_functions) if edge == source]
        found.update(dict.fromkeys(inputs or [place]))
    return tuple(found)


def _places(graph: Graph, reader: int, tensor: Tensor) -> list[int]:
    return [position for source, number, position in graph.inputs[reader] if (source, number) == tensor]


def _leaks(
    graph: Graph,
    residual: Residual,
    dominators: Dominators,
    shared: set[int],
    gating: frozenset[int],
    begin: Tensor,
) -> bool:
    region = residual.region
    return any(
        dominators.reaches(reader)
        and not region.holds(reader, (node, number))
        and not _stays_inside(graph, reader, residual.inside, set(residual.link.sums), dominators)
        for node in {*region.nodes, *gating, *residual.branch.passed} - shared - {begin[0]}
        for reader, _, number in graph.consumers[node]
    )


def _stays_inside(graph: Graph, node: int, inside: frozenset[int], sums: set[int], dominators: Dominators) -> bool:
    """Tell whether an operation, or what a few more make of it (1 - g of a gate g), is used by skip and branch only.

    Earlier sums on the skip are no such use: what goes into them does not come to this sum through the branch.
    """
    for _ in range(_MAX_SHARED):
        if node in inside or node in sums:
            return node not in sums
        readers = {reader for reader, _, _ in graph.consumers[node] if dominators.reaches(reader)}
        if len(readers) != 1:
            return False
        node = readers.pop()
    return False
