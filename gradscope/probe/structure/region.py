"""What lies between a join and a branch's end, and what that says about the branch."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from gradscope.probe.structure.chain import FactorOf
from gradscope.probe.structure.graph import Graph, Tensor
from gradscope.probe.structure.operations import Effect
from gradscope.probe.structure.parts import Part, overlap, part_of

if TYPE_CHECKING:
    from gradscope.probe.structure.residual import Residual

PURE = 1
"""A path that only hands the stream on."""
REWEIGHED = 2
"""A path that only multiplies the stream with something computed from itself, or reduces it: gates, variance, scans."""
NORMED = 4
"""A path through a normalisation layer without weights that mix."""
POOLED = 8
"""A path through pooling windows."""
WORKED = 16
"""A path through weights that mix, an attention, a transform, a recurrent layer."""

_MAX_NESTED = 32
"""Blocks inside of blocks are looked into so often; what reads a tensor further inside is taken for somebody else."""

_BENDING = frozenset({
    Effect.BEND, Effect.NORM, Effect.POOL, Effect.ATTEND, Effect.RECUR, Effect.FOURIER, Effect.OPAQUE,
})  # fmt: skip
_SHAPE_ONLY = frozenset({Effect.HAND_ON})


@dataclass
class Region:
    """What lies between a join and a branch's end.

    Attributes:
        join: The stream tensor.
        nodes: The operations that depend on the join, in execution order.
        reach: Which kinds of path lead from the join to the end.
        bends: Weights work on something that is not linear in the stream.
        linear: All of it is linear in the stream, norms apart.
        residuals: Residual additions on the way.
        normed: There is a normalisation layer on the way.
        differs: The stream is subtracted from what pooling made of it.
        refined: All paths come to the end from a coarser resolution.
        fresh: And nothing with weights ran since they were brought back to the stream's.
        finer: All paths come to the end from a finer resolution.
        modulates: The join goes into another stream's branch on every way, not into that stream.
        conditions: The join is an input of the model that only meets a larger one on the branch: a noise level.
        entries: Tensors from before the join that the branch reads as well.
        ends: What the branch adds to the stream.
        parts_read: Parts it takes of tensors from before the join (a time step of a sequence).
        beside: Operations of the branch, since the join, that do not depend on it: the keys where the join is a query.
        blocks: Residual blocks on the way that were stepped over: their operations are not among `nodes`.
    """

    graph: Graph
    join: Tensor
    nodes: list[int] = field(default_factory=list)
    reach: int = 0
    bends: bool = False
    linear: bool = False
    normed: bool = False
    differs: bool = False
    residuals: list[int] = field(default_factory=list)
    refined: bool = False
    fresh: bool = False
    finer: bool = False
    modulates: bool = False
    conditions: bool = False
    entries: tuple[Tensor, ...] = ()
    ends: tuple[Tensor, ...] = ()
    blocks: list[Residual] = field(default_factory=list)
    beside: set[int] = field(default_factory=set)
    parts_read: dict[Tensor, Part | None] = field(default_factory=dict)

    @property
    def works(self) -> bool:
        """The branch does real work: weights, attention, a transform; pooling of a norm's output or less the stream."""
        return bool(self.reach & WORKED) or bool(self.reach & POOLED and (self.normed or self.differs))

    @property
    def mixes(self) -> bool:
        """The branch is nothing but the difference of another tensor from the stream, scaled: a + s (b - a)."""
        graph = self.graph
        kinds = {graph.names[node] for node in self.nodes if graph.effects[node] is not Effect.HAND_ON}
        differences = [node for node in self.nodes if graph.names[node] in {"Sub", "Rsub"}]
        return kinds <= {"Sub", "Rsub", "Mul", "Div"} and any(
            tensor != self.join and tensor[0] not in self.members and not graph.is_raw(tensor[0])
            for node in differences
            for tensor in graph.data(node)
        )

    @property
    def activated(self) -> bool:
        """Something on the branch bends the stream: an activation, a norm, a pooling, a block; no mere product."""
        bends = (n for n in self.nodes if self.graph.effects[n] in _BENDING and self.graph.names[n] != "Pow")
        return bool(self.residuals) or next(bends, None) is not None

    @property
    def reweighs(self) -> bool:
        """The branch is the stream itself, multiplied with something."""
        return bool(self.reach & REWEIGHED)

    @property
    def readers(self) -> list[tuple[int, int]]:
        """The branch's operations that read the join: (node, position among its inputs)."""
        return self.readers_of(self.join)

    def readers_of(self, tensor: Tensor) -> list[tuple[int, int]]:
        """Return the branch's operations that read a tensor: (node, position among its inputs)."""
        return [place for place in self.graph.readers(tensor) if self.holds(place[0], tensor)]

    def holds(self, node: int, tensor: Tensor) -> bool:
        """Tell whether a reader of a tensor lies on the branch, in a residual block that was stepped over as well."""
        if node in self.members:
            return True
        stack: list[Region] = [self]
        for _ in range(_MAX_NESTED):
            if not stack:
                return False
            for block in stack.pop().blocks:
                inner = block.region
                if tensor == block.join or tensor in inner.entries:
                    if node in block.inside or node in inner.beside:
                        return True
                    stack.append(inner)
        return False

    @cached_property
    def members(self) -> frozenset[int]:
        """The operations that depend on the join, as a set."""
        return frozenset(self.nodes)

    @property
    def only_added(self) -> bool:
        """Everything on the branch that reads the join adds it to something else: it is a bias or a position."""
        if any(block.join == self.join for block in self.blocks):
            return False  # a block inside works on it
        inside = self.members
        stack, seen = [self.join], {self.join}
        while stack:
            for node, _ in self.graph.readers(stack.pop()):
                if node not in inside or node in self.residuals:
                    if node in self.residuals:
                        return False
                    continue
                effect = self.graph.effects[node]
                if effect in _SHAPE_ONLY or (effect is Effect.SCALE and len(self.graph.data(node)) == 1):
                    if (node, 0) not in seen:
                        seen.add((node, 0))
                        stack.append((node, 0))
                elif effect is not Effect.ADD or len(self.graph.data(node)) == 1:
                    return False
        return True

    def disjoint(self, parts: tuple[Part | None, ...]) -> bool:
        """Tell whether the branch reads only parts of the join that have nothing of these parts."""
        used = self._parts_read()
        return used is not None and all(not overlap(part, other) for part in parts[-1:] for other in used)

    def _parts_read(self) -> list[Part | None] | None:
        """The parts of the join that the branch reads, None where it reads all of it somewhere."""
        inside = self.members
        found: list[Part | None] = []
        stack = [self.join]
        while stack:
            tensor = stack.pop()
            for node, _ in self.graph.readers(tensor):
                if node not in inside:
                    continue
                if self.graph.effects[node] is Effect.PART:
                    numbers = {number for reader, _, number in self.graph.consumers[node] if reader in inside}
                    found += [part_of(self.graph, node, number) for number in numbers or {0}]
                elif self.graph.effects[node] in _SHAPE_ONLY:
                    stack.append((node, 0))
                else:
                    return None
        return found

    def shares_gate(self, gate: Tensor) -> bool:
        """Tell whether a factor of the skip is one minus a factor of the branch."""
        root, flipped = gate_root(self.graph, gate)
        for factor in _tail_factors(self.graph, self.ends):
            other, turned = gate_root(self.graph, factor)
            if other == root and flipped != turned:
                return True
        return False

    def weighs_only(self, factor_of: FactorOf) -> bool:
        """Tell whether only the weight of the branch depends on the stream, and what it weighs does not: a fusion."""
        factors = _tail_factors(self.graph, self.ends)
        if not factors:
            return _weighs_raw(self.graph, self.ends[0], factor_of)
        dependent = [tensor == self.join or tensor[0] in self.members for tensor in factors]
        return any(dependent) and not all(dependent)


def gate_root(graph: Graph, gate: Tensor) -> tuple[Tensor, bool]:
    """Go back from a gate to what it is computed from, and say whether it is one minus that."""
    flipped = False
    while True:
        node = gate[0]
        data = [(source, number) for source, number, _ in graph.inputs[node] if not graph.parametric[source]]
        simple = graph.effects[node] is Effect.HAND_ON or (graph.effects[node] is Effect.ADD and len(data) == 1)
        turning = graph.names[node] in {"Rsub", "Neg"}
        if len(data) != 1 or not (simple or turning):
            return gate, flipped
        flipped ^= turning
        gate = data[0]


def _weighs_raw(graph: Graph, tensor: Tensor, factor_of: FactorOf) -> bool:
    """Tell whether a squashed weight multiplies a tensor that needs no gradient: the first state of a scan."""
    weighed = False
    while True:
        node = tensor[0]
        data = graph.data(node)
        if graph.effects[node] is Effect.BEND:
            return weighed
        if len(data) != 1 or graph.effects[node] not in {Effect.HAND_ON, Effect.SCALE, Effect.PART}:
            return False
        factor = factor_of(node) if graph.names[node] == "Mul" else None
        weighed |= factor is not None and factor.elementwise
        tensor = data[0]


def _tail_factors(graph: Graph, ends: tuple[Tensor, ...]) -> list[Tensor]:
    """The factors of a branch's last product."""
    if len(ends) > 1:
        return list(ends)
    tensor = ends[0]
    while True:
        node = tensor[0]
        data = [(source, number) for source, number, _ in graph.inputs[node] if not graph.parametric[source]]
        if graph.names[node] == "Mul" and len(data) > 1:
            return data
        if len(data) != 1 or graph.effects[node] not in {Effect.HAND_ON, Effect.SCALE, Effect.ADD}:
            return []  # a constant may be added: sum() begins with 0
        tensor = data[0]
