"""Through which operations every gradient has to pass: the dominators of the graph, seen from the loss."""

from __future__ import annotations

from collections.abc import Iterable

from gradscope.probe.structure.graph import Graph


class Dominators:
    """The nodes that all paths from a node to the losses share, in near-linear time.

    A node's parent is the nearest node that every path from it to a loss goes through: the lowest common ancestor of
    its readers in the tree built so far. Ancestors are found with jump pointers (Myers, An applicative random-access
    stack, 1983), so that no chain is walked step by step.

    Attributes:
        parent: For each node its nearest dominator; `root` for those that only all losses together close off, -1 for
            nodes that lead to no loss.
        root: The number of the virtual node behind all losses.
    """

    def __init__(self, graph: Graph, losses: Iterable[int]) -> None:
        count = len(graph.nodes)
        self.root = count
        self.parent = [-1] * (count + 1)
        self._depth = [0] * (count + 1)
        self._jump = [count] * (count + 1)
        self.parent[count] = count
        ends = set(losses)
        meeting: list[int] = [-1] * count
        for node in range(count - 1, -1, -1):
            above = self.root if node in ends else meeting[node]
            if above < 0:
                continue
            self._insert(node, above)
            for source, _, _ in graph.inputs[node]:
                if not graph.parametric[source]:
                    known = meeting[source]
                    meeting[source] = node if known < 0 else self._common(known, node)

    def chain(self, node: int) -> list[int]:
        """Return a node and its dominators up to the losses, the node first."""
        found = []
        while 0 <= node != self.root:
            found.append(node)
            node = self.parent[node]
        return found

    def passes(self, node: int, other: int) -> bool:
        """Tell whether all paths from a node to the losses go through another one."""
        while 0 <= node < other:
            node = self.parent[node]
        return node == other

    def depth(self, node: int) -> int:
        """Return how many dominators a node has."""
        return self._depth[node]

    def reaches(self, node: int) -> bool:
        """Tell whether a node leads to a loss."""
        return self.parent[node] >= 0

    def _insert(self, node: int, above: int) -> None:
        self.parent[node] = above
        self._depth[node] = self._depth[above] + 1
        far = self._jump[above]
        even = self._depth[above] - self._depth[far] == self._depth[far] - self._depth[self._jump[far]]
        self._jump[node] = self._jump[far] if even else above

    def _common(self, one: int, other: int) -> int:
        if self._depth[one] < self._depth[other]:
            one, other = other, one
        while self._depth[one] > self._depth[other]:
            far = self._jump[one]
            one = far if self._depth[far] >= self._depth[other] else self.parent[one]
        while one != other:
            if self._jump[one] != self._jump[other]:
                one, other = self._jump[one], self._jump[other]
            else:
                one, other = self.parent[one], self.parent[other]
        return one
