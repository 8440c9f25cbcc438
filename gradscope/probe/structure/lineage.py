"""Where a tensor of the graph comes from: its ancestors, the projection or the sum it is made of."""

from __future__ import annotations

from collections.abc import Iterator

from gradscope.probe.structure.graph import Graph, Tensor
from gradscope.probe.structure.normalised import is_normalising
from gradscope.probe.structure.operations import Effect

_UNARY = frozenset({Effect.HAND_ON, Effect.PART, Effect.NORM, Effect.BEND, Effect.SCALE, Effect.ADD})
MAX_UNARY = 12
"""A projection inside of an attention or a gated unit is never further away than this many operations."""


def depends_on(graph: Graph, tensor: Tensor, ancestor: Tensor) -> bool:
    """Tell whether a tensor is computed from another one."""
    if tensor == ancestor:
        return True
    stack, seen = [tensor[0]], {tensor[0]}
    while stack:
        node = stack.pop()
        for source, number, _ in graph.inputs[node]:
            if (source, number) == ancestor:
                return True
            if source > ancestor[0] and source not in seen:
                seen.add(source)
                stack.append(source)
    return False


def projected_from(graph: Graph, tensor: Tensor) -> Tensor | None:
    """Return what a tensor is a projection of, up to reshapes, norms and activations; None where it is none."""
    for _ in range(MAX_UNARY):
        node = tensor[0]
        data = graph.data(node)
        if len(data) != 1 and not is_normalising(graph, node):
            return None
        if graph.effects[node] is Effect.PROJECT:
            return unshaped(graph, data[0]) if data else None
        if graph.effects[node] not in _UNARY:
            return None
        tensor = data[0]
    return None


def unshaped(graph: Graph, tensor: Tensor) -> Tensor:
    """Return the tensor that another is a reshape of."""
    while graph.effects[tensor[0]] is Effect.HAND_ON and len(graph.data(tensor[0])) == 1:
        tensor = graph.data(tensor[0])[0]
    return tensor


def mixed_streams(graph: Graph, node: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (streams, matrix) where a node multiplies streams with a matrix computed from them: hyper-connections."""
    data = graph.data(node)
    if graph.effects[node] is Effect.PROJECT and len(data) == 2:  # noqa: PLR2004 - the two factors
        for streams, matrix in (data, data[::-1]):
            if depends_on(graph, matrix, unshaped(graph, streams)):
                yield streams, matrix


def settled_from(graph: Graph, tensor: Tensor) -> Iterator[int]:
    """Yield the nodes a tensor goes back to through norms and activations alone: the sums it may be made of."""
    for _ in range(MAX_UNARY):
        yield tensor[0]
        data = graph.data(tensor[0])
        if len(data) != 1 or graph.effects[tensor[0]] not in _UNARY:
            return
        tensor = data[0]


def weights_of(graph: Graph, nodes: list[int]) -> set[int]:
    """The leaves behind the weights of some operations."""
    found = set()
    for node in nodes:
        for source, _, _ in graph.inputs[node]:
            leaf = source
            while graph.parametric[leaf] and graph.inputs[leaf]:
                leaf = graph.inputs[leaf][0][0]
            if graph.parametric[leaf]:
                found.add(leaf)
    return found
