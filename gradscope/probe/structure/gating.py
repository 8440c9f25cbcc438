"""The operations that make a gate of a skip from the stream: what passes them goes to the branch's account."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradscope.probe.structure.chain import Link
    from gradscope.probe.structure.graph import Graph

_MAX_GATING = 1_000
"""Operations that make a gate; the 20 rounds of Sinkhorn's algorithm, which mHC takes, are 200."""


def gating_of(graph: Graph, link: Link) -> frozenset[int] | None:
    """Return the operations that make the gates of a skip from the stream that it begins at.

    Returns:
        Their numbers; None where they are too many to be gone through for each site.
    """
    stack = [gate[0] for gate in link.gates]
    behind = set(stack)
    while stack:
        if len(behind) > _MAX_GATING:
            return None
        for source, _ in graph.data(stack.pop()):
            if source > link.tensor[0] and source not in behind:
                behind.add(source)
                stack.append(source)
    gating: set[int] = set()
    for node in sorted(behind):
        if any(tensor == link.tensor or tensor[0] in gating for tensor in graph.data(node)):
            gating.add(node)
    return frozenset(gating)
