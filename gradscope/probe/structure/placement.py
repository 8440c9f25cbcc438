"""Where a residual block normalises: before the branch, after the sum, on both sides of the branch, or nowhere."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradscope.probe.structure.graph import Graph, Tensor
from gradscope.probe.structure.kinds import ungated
from gradscope.probe.structure.normalised import ends_normalised, normaliser
from gradscope.probe.structure.operations import Effect
from gradscope.probe.structure.own import OwnPart
from gradscope.probe.structure.residual import Residual


def placement_of(graph: Graph, residual: Residual, own: OwnPart) -> str:
    """Return where a residual block normalises.

    pre: the branch begins with a norm (a gate on it may read the stream itself). sandwich: it also ends with one.
    post: the sum goes into a norm before anything else reads it. output: the branch only ends with a norm. none:
    neither.
    """
    last = any(ends_normalised(graph, tensor) for tensor in residual.branch.tensors)
    inside = frozenset(own.nodes) & frozenset(own.leading_to(ungated(graph, residual)))
    begins = (*own.begins, *_read_from(graph, residual.join, inside))
    if any(normaliser(graph, tensor, inside) is not None for tensor in begins):
        return "sandwich" if last else "pre"
    if normaliser(graph, (residual.node, 0)) is not None:
        return "post"
    return "output" if last else "none"


def reads_normalised(graph: Graph, residual: Residual) -> bool:
    """Tell whether branch and shortcut both read what a norm and its activation give (a pre-activation ResNet's)."""
    node = residual.join[0]
    data = graph.data(node)
    bent = graph.effects[node] is Effect.BEND and len(data) == 1
    return residual.link.projection and ends_normalised(graph, data[0][:2] if bent else residual.join)


def _read_from(graph: Graph, join: Tensor, inside: frozenset[int]) -> Iterator[Tensor]:
    """Yield what a branch reads from several streams beside one another: their sum, weighed (hyper-connections)."""
    stack, seen = [join], {join}
    while stack:
        tensor = stack.pop()
        for node, _ in graph.readers(tensor):
            following = (node, 0)
            if node not in inside or following in seen:
                continue
            seen.add(following)
            if _weighs_streams(graph, join, tensor, node):
                yield following
            elif graph.effects[node] in {Effect.HAND_ON, Effect.PART, Effect.SCALE}:
                stack.append(following)


def _weighs_streams(graph: Graph, join: Tensor, tensor: Tensor, node: int) -> bool:
    """Tell whether a node makes one stream of several, with one weight for each of them (or for each of each token)."""
    before, after = graph.shape(join), graph.shape((node, 0))
    if not before or not after:
        return False
    num_streams, left_over = divmod(math.prod(before), max(math.prod(after), 1))
    if num_streams < 2 or left_over or num_streams not in before:  # noqa: PLR2004 - several streams
        return False
    if graph.names[node] in {"Sum", "Mean"}:
        return True
    if graph.effects[node] is not Effect.PROJECT:
        return False
    weights = [(source, number) for source, number, _ in graph.inputs[node] if (source, number) != tensor]
    sizes = [(graph.parametric[source], math.prod(graph.shape((source, number)) or ())) for source, number in weights]
    # Weights for each token are computed; a layer's may be as many by chance.
    return any(size == num_streams or (not fixed and size == math.prod(before) // before[-1]) for fixed, size in sizes)
