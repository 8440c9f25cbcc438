"""What of a branch is the block's own: not the blocks of other streams that its input has gone through before.

In a coupling, `y1 = x1 + f(x2)` and `y2 = x2 + g(y1)`, the second sum's branch is computed from x2 by f and by g, but
g is the block's own. Where the features of a graph's edges and nodes work on each other, so is the layer called last.
"""

from __future__ import annotations

from collections.abc import Iterable

from gradscope.probe.structure.graph import Tensor
from gradscope.probe.structure.lineage import settled_from
from gradscope.probe.structure.operations import Effect
from gradscope.probe.structure.parts import overlap
from gradscope.probe.structure.residual import Residual

_TAKING = frozenset({Effect.HAND_ON, Effect.PART, Effect.JOIN})
"""What may be done to streams before a block works on them."""


class OwnPart:
    """The part of a branch that belongs to its block.

    Args:
        residual: The residual addition.
        found: All residual additions of the graph, by node.

    Attributes:
        blocks: The residual blocks on the branch, which were stepped over, by their sums.
        begins: What it starts from: the stream, or the other streams that the stream has gone into.
        nodes: Its operations, in execution order.
        working: Those of them after the ones that only cut, join and reshape what it starts from.
    """

    def __init__(self, residual: Residual, found: dict[int, list[Residual]]) -> None:
        region = self._region = residual.region
        self.blocks = {block.node: block for block in region.blocks}
        others = _sums_of_others(residual, found)
        behind = self.leading_to(region.ends, others)
        direct = self._reached(region.join, others)
        passed = not any(end == region.join or end[0] in direct for end in region.ends)
        read = tuple((node, 0) for node in sorted(others & behind))
        self.begins: tuple[Tensor, ...] = read if passed else (region.join,)
        self.nodes = [n for n in region.nodes if n in behind and n not in others and (passed or n in direct)]
        self.working = self._trimmed() or self.nodes

    def leading_to(self, ends: Iterable[Tensor], stops: frozenset[int] = frozenset()) -> set[int]:
        """Return the branch's operations that some tensors are computed by, going back no further than to some sums."""
        stack = [node for node, _ in ends if node in self._region.members]
        found = set(stack)
        while stack:
            node = stack.pop()
            if node in stops:
                continue
            sources = {source for source, _ in self._sources(node) if source in self._region.members}
            stack += sources - found
            found |= sources
        return found

    def _reached(self, start: Tensor, stops: frozenset[int]) -> set[int]:
        reached: set[int] = set()
        for node in self._region.nodes:
            sources = self._sources(node)
            if node not in stops and any(tensor == start or tensor[0] in reached for tensor in sources):
                reached.add(node)
        return reached

    def _trimmed(self) -> list[int]:
        """Leave out what only cuts, joins and reshapes the beginning."""
        graph, taken = self._region.graph, {node for node, _ in self.begins}
        mine, working = frozenset(self.nodes), []
        for node in self.nodes:
            inside = {source for source, _ in self._sources(node) if source in mine}
            if graph.effects[node] in _TAKING and inside <= taken:
                taken.add(node)
            else:
                working.append(node)
        return working

    def _sources(self, node: int) -> list[Tensor]:
        block = self.blocks.get(node)
        return self._region.graph.data(node) if block is None else [block.join, *block.entries]


def _sums_of_others(residual: Residual, found: dict[int, list[Residual]]) -> frozenset[int]:
    """The sums on a branch that belong to other streams: they do not add to the join, or to another half of it."""
    region, others = residual.region, set[int]()
    for node in region.nodes:
        one = next(iter(found.get(node, ())), None)
        if one is None or one.concatenates:
            continue
        mine, its = residual.link.parts[-1:], one.link.parts[-1:]
        halves = one.join == region.join and bool(mine and its) and not overlap(mine[0], its[0])
        elsewhere = one.join != region.join and one.join[0] not in region.members
        if elsewhere or halves or not others.isdisjoint(settled_from(region.graph, one.join)):
            others.add(node)
    return frozenset(others)
