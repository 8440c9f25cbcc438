"""Which operations compute with parameters alone: a weight that is normed or turned is still no data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch.nn import Parameter

from gradscope.probe.structure.operations import Effect, operation
from gradscope.probe.structure.trace import Trace, shape_of, shown_by

if TYPE_CHECKING:
    from gradscope.probe.structure.graph import Graph

_REPEATING = frozenset({"Expand", "Repeat"})
"""Operations that give each sample its own copy."""


_LOOKING_UP = frozenset({"Index", "IndexSelect"})
"""Operations that take rows out of a table."""


_KEEPING = frozenset({Effect.HAND_ON, Effect.SCALE})
"""What does not make something else of a vector: a change of shape, a dropout."""


def parametric_nodes(graph: Graph) -> tuple[list[bool], list[int]]:
    """Return for each node whether its output is computed from parameters alone, and the learned tokens added to.

    Learned tokens that a block adds to are data, although no data go into them.
    """
    known: list[bool] = []
    for number in range(len(graph.nodes)):
        known.append(_is_parametric(graph, number, known))
    for node, name in enumerate(graph.names):
        if name in _LOOKING_UP and known[node] and _is_worked_on(graph, node, known):
            _free(graph, node, known)
    return known, [*_free_tokens(graph, known), *_free_queries(graph, known)]


def _is_parametric(graph: Graph, number: int, known: list[bool]) -> bool:
    node, inputs = shown_by(graph.nodes[number]), graph.inputs[number]
    if not inputs:
        return node.weight if isinstance(node, Trace) else isinstance(getattr(node, "variable", None), Parameter)
    if not all(known[source] for source, _, _ in inputs):
        return False
    effect = graph.effects[number]
    if effect is Effect.ATTEND or effect is Effect.RECUR or (effect is Effect.PROJECT and lacks_data(node)):
        return False
    return not _repeats_tokens(graph, number)


def _repeats_tokens(graph: Graph, number: int) -> bool:
    """Learned queries become data where they are repeated for every sample; a weight never is."""
    if graph.names[number] not in _REPEATING:
        return False
    before, after = graph.shape(graph.inputs[number][0][:2]), shape_of(graph.nodes[number], 0)
    if before is None or after is None:
        return False
    return math.prod(after) > math.prod(before) and sum(size > 1 for size in before) > 1


def _free_tokens(graph: Graph, parametric: list[bool]) -> list[int]:
    """Learned tokens that stand among the data and are added to are a stream, as a class token that attends to it."""
    tokens = []
    for node, name in enumerate(graph.names):
        if name in _REPEATING and parametric[node]:
            readers = [reader for reader, _, _ in graph.consumers[node] if not parametric[reader]]
            shape = graph.shape((node, 0))
            joined = any(graph.effects[reader] is Effect.JOIN for reader in readers)
            if joined and any(graph.names[reader] == "Add" and graph.shape((reader, 0)) == shape for reader in readers):
                parametric[node] = False
                tokens.append(node)
    return tokens


def _free_queries(graph: Graph, parametric: list[bool]) -> list[int]:
    """One learned vector for every token is a stream where what was looked up with it is added to it (XLNet).

    What is computed from it alone are data then as well. The vector of a position is only added to others.
    """
    queries = []
    for node, name in enumerate(graph.names):
        if name in _REPEATING and parametric[node] and _is_answered(graph, node, parametric):
            queries.append(node)
            _free(graph, node, parametric)
    return queries


def _is_worked_on(graph: Graph, looked_up: int, parametric: list[bool]) -> bool:
    """Tell whether rows looked up in a table go through a norm or a layer with weights of its own: an embedding.

    A table of biases is added to scores, and weights that are looked up (experts) work on data.
    """
    stack, seen = [looked_up], {looked_up}
    while stack:
        for reader, _, _ in graph.consumers[stack.pop()]:
            if not parametric[reader] or reader in seen:
                continue
            if graph.effects[reader] is Effect.NORM or graph.effects[reader] is Effect.PROJECT:
                return True
            if graph.effects[reader] in _LEAVING:
                seen.add(reader)
                stack.append(reader)
    return False


_LEAVING = frozenset({Effect.HAND_ON, Effect.SCALE, Effect.ADD})
"""What may be done to an embedding before a layer reads it: positions are added, a factor."""


def _is_answered(graph: Graph, query: int, parametric: list[bool]) -> bool:
    """Tell whether data that a projection of a repeated vector was used for are added to that vector."""
    stack, projected, sums = [query], False, []
    while stack:
        for reader, _, _ in graph.consumers[stack.pop()]:
            if parametric[reader] and graph.effects[reader] in _KEEPING and len(graph.inputs[reader]) == 1:
                stack.append(reader)
            elif graph.effects[reader] is Effect.PROJECT:
                projected = True
            elif graph.names[reader] == "Add" and not parametric[reader]:
                sums.append(reader)
    others = {source for node in sums for source, _, _ in graph.inputs[node] if not parametric[source]}
    return projected and bool(others) and not others.isdisjoint(_computed_from(graph, query, max(others)))


def _computed_from(graph: Graph, node: int, last: int) -> set[int]:
    """The operations up to one that are computed from another."""
    stack, found = [node], {node}
    while stack:
        readers = {reader for reader, _, _ in graph.consumers[stack.pop()] if reader <= last}
        stack += readers - found
        found |= readers
    return found


def _free(graph: Graph, node: int, parametric: list[bool]) -> None:
    """Take a node for data, and what is computed from it."""
    parametric[node] = False
    stack = [node]
    while stack:
        for reader, _, _ in graph.consumers[stack.pop()]:
            if parametric[reader]:
                parametric[reader] = False
                stack.append(reader)


def lacks_data(node: Any) -> bool:
    """Tell whether a weighted operation read data that needs no gradient (its first inputs, bias apart)."""
    name = node.name if isinstance(node, Trace) else operation(node.name())
    if name in {"Embedding", "EmbeddingBag"}:
        return True
    if isinstance(node, Trace):
        return False  # data are among its inputs
    edges = node.next_functions
    if name == "Mv":
        return False  # a matrix and a buffer, as in the norm of a weight
    data = edges[1:3] if name in {"Addmm", "Baddbmm", "Addbmm", "Addmv"} else edges[:2]
    return any(source is None for source, _ in data)
