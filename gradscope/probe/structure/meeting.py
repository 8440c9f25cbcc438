"""Where the two terms of a sum come from the same tensor: the join of a skip and a branch."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gradscope.probe.structure.branch import examine
from gradscope.probe.structure.chain import FactorOf, Link, follow, starts
from gradscope.probe.structure.graph import Graph, Tensor
from gradscope.probe.structure.region import Region
from gradscope.probe.structure.terms import Term

if TYPE_CHECKING:
    from gradscope.probe.structure.residual import Residual


@dataclass(frozen=True, slots=True)
class Meeting:
    """The first tensor, going back from a sum, that the skip is and the branch reads.

    Attributes:
        link: What lies on the skip.
        region: What lies on the branch.
    """

    link: Link
    region: Region


@dataclass(slots=True)
class Search:
    """Go back from both terms of a sum at once, latest operation first, until they meet.

    Attributes:
        graph: The graph.
        found: The residual additions found so far.
        factor_of: What a product multiplied by.
        limit: The search gives up on a skip and branch of more operations.
        visited: The operations of the branch.
    """

    graph: Graph
    found: dict[int, list[Residual]]
    factor_of: FactorOf
    limit: int
    visited: set[int] = field(default_factory=set)
    _jumps: dict[int, Residual] = field(default_factory=dict)
    _chain: dict[Tensor, Link] = field(default_factory=dict)
    _outputs: dict[int, list[Link]] = field(default_factory=dict)
    _chain_open: set[int] = field(default_factory=set)
    _read: set[Tensor] = field(default_factory=set)
    _read_open: set[int] = field(default_factory=set)
    _heap: list[int] = field(default_factory=list)
    _queued: set[int] = field(default_factory=set)

    @property
    def size(self) -> int:
        """How many operations of skip and branch the search has looked at."""
        return len(self.visited) + len(self._chain)

    def meet(self, skip: Term, branch: Term) -> Meeting | None:
        """Return where a skip and a branch meet, None where they do not."""
        for link in starts(skip):
            self._extend(link)
        for tensor in branch.tensors if branch.gate is None else (*branch.tensors, branch.gate):
            self._reads(tensor)
        while self._heap and self._chain_open and self._read_open and self.size <= self.limit:
            node = -heapq.heappop(self._heap)
            links = self._outputs.get(node, [])
            for link in list(links):
                if link.tensor in self._read:
                    region = examine(self.graph, link.tensor, branch, self.visited, self._jumps, self.found)
                    if not region.works and region.mixes:
                        continue  # a + s (b - a): what matters is where a and b come from
                    if region.works or not link.gates:
                        return Meeting(link, region)
                    links.remove(link)  # what weighs both terms, not the stream
            self._chain_open.discard(node)
            for link in links:
                for longer in follow(self.graph, link, self.found, self.factor_of):
                    self._extend(longer)
            if node in self._read_open:
                self._read_open.discard(node)
                self.visited.add(node)
                for tensor in self._sources(node):
                    self._reads(tensor)
        return None

    def _extend(self, link: Link) -> None:
        if link.tensor not in self._chain:
            self._chain[link.tensor] = link
            self._outputs.setdefault(link.tensor[0], []).append(link)
            self._chain_open.add(link.tensor[0])
            self._queue(link.tensor[0])

    def _reads(self, tensor: Tensor) -> None:
        self._read.add(tensor)
        if tensor[0] not in self.visited:
            self._read_open.add(tensor[0])
            self._queue(tensor[0])

    def _queue(self, node: int) -> None:
        if node not in self._queued:
            self._queued.add(node)
            heapq.heappush(self._heap, -node)

    def _sources(self, node: int) -> list[Tensor]:
        """What a node of the branch reads. A residual block is stepped over where the skip does not lead into it."""
        residuals = self.found.get(node)
        if residuals is not None and len(residuals) == 1:
            block = residuals[0]
            if not any(block.join[0] < other < node for other in self._chain_open):
                self._jumps[node] = block
                return [block.join, *block.entries]
        return self.graph.data(node)
