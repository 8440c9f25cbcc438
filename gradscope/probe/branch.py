"""What a branch does: the work between the join and the sum."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from gradscope.probe.chain import resamples
from gradscope.probe.graph import Graph, Tensor
from gradscope.probe.operations import Effect
from gradscope.probe.parts import Part, overlap, part_of
from gradscope.probe.terms import Product, Term

if TYPE_CHECKING:
    from gradscope.probe.residual import Residual

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

_SHAPE_ONLY = frozenset({Effect.HAND_ON})


@dataclass
class Region:
    """What lies between a join and a branch's end.

    Attributes:
        join: The stream tensor.
        nodes: The operations that depend on the join, in execution order.
        reach: Which kinds of path lead from the join to the end.
        bends: Weights work on something that is not linear in the stream.
        residuals: Residual additions on the way.
        normed: There is a normalisation layer on the way.
        refined: All paths come to the end from a coarser resolution.
        fresh: And nothing with weights ran since they were brought back to the stream's.
        finer: All paths come to the end from a finer resolution.
        modulates: The join goes into another stream's branch on the way, not into that stream.
        entries: Tensors from before the join that the branch reads as well.
        ends: What the branch adds to the stream.
        parts_read: Parts it takes of tensors from before the join (a time step of a sequence).
        blocks: Residual blocks on the way that were stepped over: their operations are not among `nodes`.
    """

    graph: Graph
    join: Tensor
    nodes: list[int] = field(default_factory=list)
    reach: int = 0
    bends: bool = False
    normed: bool = False
    residuals: list[int] = field(default_factory=list)
    refined: bool = False
    fresh: bool = False
    finer: bool = False
    modulates: bool = False
    entries: tuple[Tensor, ...] = ()
    ends: tuple[Tensor, ...] = ()
    blocks: list[Residual] = field(default_factory=list)
    parts_read: dict[Tensor, Part | None] = field(default_factory=dict)

    @property
    def works(self) -> bool:
        """The branch does real work: weights, attention, a transform; or pooling of a normalised stream."""
        return bool(self.reach & WORKED) or bool(self.reach & POOLED and self.normed)

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
        return any(
            block.region.holds(node, tensor)
            for block in self.blocks
            if tensor == block.join or tensor in block.region.entries
        )

    @cached_property
    def members(self) -> frozenset[int]:
        """The operations that depend on the join, as a set."""
        return frozenset(self.nodes)

    @property
    def only_added(self) -> bool:
        """Everything on the branch that reads the join adds it to something else: it is a bias or a position."""
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


def examine(
    graph: Graph,
    join: Tensor,
    branch: Term,
    visited: set[int],
    jumps: dict[int, Residual],
    found: dict[int, list[Residual]],
) -> Region:
    """Go forward from the join through what the branch was computed by, and see what is done to the stream."""
    region = Region(graph, join, ends=branch.tensors)
    paths = _Paths(region, jumps, found)
    for node in sorted(visited):
        if node > join[0]:
            paths.visit(node)
    region.entries = tuple(sorted(paths.entries))
    paths.finish(branch)
    return region


class _Paths:
    """What the paths from the join to each node of a branch have in common; filled node by node."""

    def __init__(self, region: Region, jumps: dict[int, Residual], found: dict[int, list[Residual]]) -> None:
        self.region = region
        self.graph = region.graph
        self.jumps = jumps
        self.found = found
        self.reach: dict[int, int] = {}
        self.bent: set[int] = set()
        self.curved: set[int] = set()
        """Nodes behind something that is not linear."""
        self.refined: set[int] = set()
        """Nodes to which all paths come from a coarser resolution."""
        self.fresh: set[int] = set()
        """Of those the ones where nothing with weights has run since."""
        self.finer: set[int] = set()
        """Nodes to which all paths come from a finer resolution."""
        self.entries: set[Tensor] = set()
        shape = self.graph.shape(region.join)
        self.size = math.prod(shape) if shape is not None else 0

    def visit(self, node: int) -> None:
        """Take a node into the region where it depends on the join."""
        block = self.jumps.get(node)
        sources = [block.join, *block.entries] if block is not None else self.graph.data(node)
        dependent = [tensor for tensor in sources if tensor == self.region.join or tensor[0] in self.reach]
        self.entries.update(tensor for tensor in sources if tensor[0] < self.region.join[0])
        if not dependent:
            self._note_part(node)
            return
        masks = [self._mask(tensor) for tensor in dependent]
        curved = any(tensor[0] in self.curved for tensor in dependent)
        bent = any(tensor[0] in self.bent for tensor in dependent)
        effect = self.graph.effects[node]
        if node in self.found:
            mask, curves = self._past_sum(node, masks), True
        else:
            mask, curves = _past_operation(self.graph, node, masks)
        self.reach[node] = mask
        self.region.nodes.append(node)
        if block is not None:
            self.region.blocks.append(block)
        self.region.normed |= effect is Effect.NORM
        if curved or curves:
            self.curved.add(node)
        if bent or (curved and effect is Effect.PROJECT) or effect in _DEEP or node in self.region.residuals:
            self.bent.add(node)
        self._resolution(node, [tensor[0] for tensor in dependent])

    def _note_part(self, node: int) -> None:
        if self.graph.effects[node] is Effect.PART and self.graph.names[node] in {"Select", "Slice", "Split", "Unbind"}:
            source = self.graph.inputs[node][0][:2]
            if source[0] < self.region.join[0]:
                self.region.parts_read[source] = part_of(self.graph, node, 0)

    def _resolution(self, node: int, sources: list[int]) -> None:
        grows = self._grows(node)
        every = any if self.graph.effects[node] is Effect.JOIN else all
        if grows < 0 or every(source in self.refined for source in sources):
            self.refined.add(node)
        working = self.graph.effects[node] is Effect.PROJECT
        if not working and (grows < 0 or every(source in self.fresh for source in sources)):
            self.fresh.add(node)
        if grows > 0 or all(source in self.finer for source in sources):
            self.finer.add(node)

    def finish(self, branch: Term) -> None:
        """Sum up the paths that end at the branch's end."""
        masks = [self._mask(tensor) for tensor in branch.tensors if self._mask(tensor)]
        mask = _union(masks)
        if branch.product is Product.MATRIX:
            mask = WORKED
        elif len(masks) > 1:
            mask = _product(mask)
        self.region.reach = mask
        self.region.bends = any(tensor[0] in self.bent for tensor in branch.tensors)
        ends = [tensor[0] for tensor in branch.tensors]
        self.region.refined = all(node in self.refined for node in ends)
        self.region.fresh = all(node in self.fresh for node in ends)
        self.region.finer = all(node in self.finer for node in ends)

    def _mask(self, tensor: Tensor) -> int:
        return PURE if tensor == self.region.join else self.reach.get(tensor[0], 0)

    def _past_sum(self, node: int, masks: list[int]) -> int:
        """A residual block hands its stream on and adds work to it, whatever its gates do in between."""
        self.region.residuals.append(node)
        residual = self.found[node][0]
        stream = self._mask(residual.join)
        if not stream:
            self.region.modulates |= _bypasses(self.graph, residual, self.region.join)
            return _union(masks) | WORKED
        return WORKED if residual.link.projection else stream | WORKED

    def _grows(self, node: int) -> int:
        """Return -1 where a node makes a tensor larger that was smaller than the stream, 1 where it was as large."""
        resampling = resamples(self.graph, node)
        if not resampling and self.graph.effects[node] not in _GROWING:
            return 0
        before, after = self.graph.shape(self.graph.inputs[node][0][:2]), self.graph.shape((node, 0))
        if before is None or after is None or math.prod(after) <= math.prod(before):
            return 0
        if math.prod(before) < self.size:
            return -1
        return int(resampling)


def _bypasses(graph: Graph, residual: Residual, tensor: Tensor) -> bool:
    """Tell whether another block's branch is computed from its own stream in other ways than through a tensor.

    A position, a score or a state handed on only modulates a block; in a reversible coupling it is all the block sees.
    """
    reached = {residual.join}
    for node in residual.region.nodes:
        if node != tensor[0] and any((s, n) in reached for s, n, _ in graph.inputs[node]):
            reached.update((node, number) for number in {n for _, _, n in graph.consumers[node]} | {0})
    return any(end in reached for end in residual.branch.tensors)


def _past_operation(graph: Graph, node: int, masks: list[int]) -> tuple[int, bool]:
    """Return which paths lead out of an operation, and whether it is not linear in the stream."""
    effect = graph.effects[node]
    union = _union(masks)
    product = len(masks) > 1
    if effect is Effect.PROJECT:
        mixed = product or len(graph.data(node)) > 1
        return (_product(union) if mixed else WORKED), product
    if effect in _WORKING:
        return WORKED, effect is not Effect.FOURIER
    if effect is Effect.NORM:
        return _without(union, PURE | REWEIGHED, NORMED), False
    if effect is Effect.POOL:
        return _without(union, PURE | REWEIGHED | NORMED, POOLED), False
    if effect is Effect.REDUCE:
        return _product(union), graph.names[node] not in {"Sum", "Mean", "Cumsum"}
    if effect is Effect.SCALE:
        return (_product(union) if product else union), product
    if effect is Effect.JOIN or graph.names[node] in {"Sub", "Rsub"}:
        # A part of the stream handed on beside worked ones, or a difference from it (f(x) - x), is part of the work.
        return (union & ~PURE if union & WORKED else union), False
    if effect in _LINEAR:
        return union, product and graph.names[node] in {"Addcmul", "Addcdiv"}
    return (_product(union) if product else union), True


def _union(masks: list[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


_WORKING = frozenset({Effect.ATTEND, Effect.RECUR, Effect.FOURIER, Effect.OPAQUE})
_DEEP = frozenset({Effect.ATTEND, Effect.RECUR, Effect.OPAQUE})
_LINEAR = frozenset({Effect.HAND_ON, Effect.PART, Effect.ADD, Effect.RESAMPLE})
_GROWING = frozenset({Effect.HAND_ON, Effect.PART})


def _product(mask: int) -> int:
    return _without(mask, PURE, REWEIGHED)


def _without(mask: int, gone: int, instead: int) -> int:
    return (mask & ~gone) | instead if mask & gone else mask


def weighs_only(region: Region) -> bool:
    """Tell whether only the weight of the branch depends on the stream, and what it weighs does not: a fusion."""
    factors = _tail_factors(region.graph, region.ends)
    dependent = [tensor == region.join or tensor[0] in region.members for tensor in factors]
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
        if len(data) != 1 or graph.effects[node] not in {Effect.HAND_ON, Effect.SCALE}:
            return []
        tensor = data[0]
