"""Walk the graph behind the losses of a step once, and put its operations in the order in which they ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gradscope.probe.deep import make_room
from gradscope.probe.structure.graph import Graph
from gradscope.probe.structure.operations import operation
from gradscope.probe.structure.stacks import take_apart
from gradscope.probe.structure.trace import OUTSIDE, Trace

_LEAF_SEQUENCE = 1 << 62
"""Leaf accumulators carry the largest sequence number; they come first."""


def walk(
    roots: Iterable[Any],
    hidden: Mapping[int, Sequence[tuple[int, Trace]]] | None = None,
    splices: Mapping[tuple[int, int], Trace] | None = None,
    in_views: Mapping[int, str] | None = None,
) -> Graph:
    """Walk the graph behind some autograd nodes once, without recursion.

    Args:
        roots: The losses' autograd nodes.
        hidden: By sequence number, the inputs that autograd does not know because they need no gradient.
        in_views: By sequence number, what was done in place to a view (autograd shows that it was done only).
        splices: By sequence number and output, the trace that computed an opaque node's output (checkpointing).
    """
    found: dict[Any, list[tuple[Any, int, int]]] = {}
    stack = [root for root in roots if root is not None]
    hidden = hidden or {}
    splices = splices or {}
    carriers: dict[Trace, tuple[Any, int]] = {}
    while stack:
        node = stack.pop()
        if node in found:
            continue
        edges = found[node] = _edges(node, hidden, splices, carriers)
        stack.extend(source for source, _, _ in edges if source not in found)
    make_room(len(found))
    graph = _ordered(found, in_views or {})
    graph.carriers = carriers
    take_apart(graph)
    return graph


def _edges(
    node: Any,
    hidden: Mapping[int, Sequence[tuple[int, Trace]]],
    splices: Mapping[tuple[int, int], Trace],
    carriers: dict[Trace, tuple[Any, int]],
) -> list[tuple[Any, int, int]]:
    if isinstance(node, Trace):
        pairs = [(item, 0) if isinstance(item, Trace) else item for item in node.inputs]
        edges = [(pair[0], pair[1], i) for i, pair in enumerate(pairs) if pair is not None]
    else:
        edges = [(source, number, i) for i, (source, number) in enumerate(node.next_functions) if source is not None]
        if hidden:
            edges += [(trace, 0, position) for position, trace in hidden.get(node._sequence_nr(), ())]
    return [_spliced(edge, splices, carriers) for edge in edges] if splices else edges


def _spliced(
    edge: tuple[Any, int, int], splices: Mapping[tuple[int, int], Trace], carriers: dict[Trace, tuple[Any, int]]
) -> tuple[Any, int, int]:
    source, number, position = edge
    if isinstance(source, Trace):
        return edge
    trace = splices.get((source._sequence_nr(), number))
    if trace is None:
        return edge
    carriers[trace] = (source, number)
    return trace, 0, position


def _ordered(found: dict[Any, list[tuple[Any, int, int]]], in_views: Mapping[int, str]) -> Graph:
    sequences = [_sequence(node) for node in found]
    nodes = list(found)
    nodes = [nodes[i] for i in sorted(range(len(nodes)), key=sequences.__getitem__)]
    order = {node: i for i, node in enumerate(nodes)}
    inputs = [[(order[source], number, position) for source, number, position in found[node]] for node in nodes]
    if any(source >= node for node, edges in enumerate(inputs) for source, _, _ in edges):
        order = _topological(found)  # several threads number their nodes independently
        nodes = sorted(found, key=order.__getitem__)
        inputs = [[(order[source], number, position) for source, number, position in found[node]] for node in nodes]
        sequences = [_sequence(node) for node in nodes]
    else:
        sequences.sort()
    graph = Graph(in_views)
    graph.index, graph.nodes, graph.inputs, graph.sequences = order, nodes, inputs, sequences
    graph.names = [node.name if isinstance(node, Trace) else operation(node.name()) for node in nodes]
    return graph


def _sequence(node: Any) -> float:
    if isinstance(node, Trace):
        return node.sequence
    number: int = node._sequence_nr()
    return number if number < _LEAF_SEQUENCE else OUTSIDE


def _topological(found: dict[Any, list[tuple[Any, int, int]]]) -> dict[Any, int]:
    waiting = {node: len(edges) for node, edges in found.items()}
    readers: dict[Any, list[Any]] = {node: [] for node in found}
    for node, edges in found.items():
        for source, _, _ in edges:
            readers[source].append(node)
    ready = [node for node, count in waiting.items() if not count]
    order: dict[Any, int] = {}
    while ready:
        node = ready.pop()
        order[node] = len(order)
        for reader in readers[node]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    return order
