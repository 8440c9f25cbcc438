"""Where a residual block normalises: before the branch, after the sum, on both sides of the branch, or nowhere."""

from __future__ import annotations

from gradscope.probe.structure.graph import Graph
from gradscope.probe.structure.normalised import ends_normalised, normaliser
from gradscope.probe.structure.residual import Residual


def placement_of(graph: Graph, residual: Residual) -> str:
    """Return where a residual block normalises.

    pre: the branch begins with a norm. sandwich: it also ends with one. post: the sum goes into a norm before anything
    else reads it. output: the branch only ends with a norm. none: neither.
    """
    inside = frozenset(residual.region.nodes)
    last = any(ends_normalised(graph, tensor) for tensor in residual.branch.tensors)
    if normaliser(graph, residual.join, inside) is not None:
        return "sandwich" if last else "pre"
    if normaliser(graph, (residual.node, 0)) is not None:
        return "post"
    return "output" if last else "none"
