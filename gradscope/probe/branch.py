"""What a branch does: the work between the join and the sum."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gradscope.probe.chain import FactorOf
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


@dataclass(slots=True)
class Region:
    """What lies between a join and a branch's end.

    Attributes:
        join: The stream tensor.
        nodes: The operations that depend on the join, in execution order.
        reach: Which kinds of path lead from the join to the end.
        bends: Something on the way is not linear in the stream.
        residuals: Residual additions on the way.
        resampled: A change of resolution on the way.
        entries: Tensors from before the join that the branch reads as well.
    """

    graph: Graph
    join: Tensor
    nodes: list[int] = field(default_factory=list)
    reach: int = 0
    bends: bool = False
    normed: bool = False
    residuals: list[int] = field(default_factory=list)
    resampled: bool = False
    entries: tuple[Tensor, ...] = ()
    ends: tuple[Tensor, ...] = ()
    visited: frozenset[int] = frozenset()

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
        inside = set(self.nodes)
        return [(node, position) for node, position in self.graph.readers(self.join) if node in inside]

    def disjoint(self, parts: tuple[Part | None, ...]) -> bool:
        """Tell whether the branch reads only parts of the join that have nothing of these parts."""
        used = self._parts_read()
        return used is not None and all(not overlap(part, other) for part in parts[-1:] for other in used)

    def _parts_read(self) -> list[Part | None] | None:
        """The parts of the join that the branch reads, None where it reads all of it somewhere."""
        inside = set(self.nodes)
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
    factor_of: FactorOf,
) -> Region:
    """Go forward from the join through what the branch was computed by, and see what is done to the stream."""
    region = Region(graph, join, ends=branch.tensors)
    reach: dict[int, int] = {}
    bent: set[int] = set()
    entries: set[Tensor] = set()
    for node in sorted(visited):
        if node <= join[0]:
            continue
        mask, bends = _reach_of(graph, node, join, reach, bent, jumps, found, entries)
        if not mask:
            continue
        reach[node] = mask
        region.nodes.append(node)
        if bends:
            bent.add(node)
        region.normed |= graph.effects[node] is Effect.NORM
        if graph.effects[node] is Effect.RESAMPLE or _upsampling(graph, node):
            region.resampled = True
        if node in found and found[node][0].kind != "concat":
            region.residuals.append(node)
    _finish(region, branch, reach, bent)
    region.entries = tuple(sorted(entries))
    return region


def _finish(region: Region, branch: Term, reach: dict[int, int], bent: set[int]) -> None:
    masks = [PURE if tensor == region.join else reach.get(tensor[0], 0) for tensor in branch.tensors]
    masks = [mask for mask in masks if mask]
    for mask in masks:
        region.reach |= mask
    if branch.product is Product.MATRIX:
        region.reach = WORKED
    elif len(masks) > 1:
        region.reach = _product(region.reach)
        region.bends = True
    region.bends |= any(tensor[0] in bent for tensor in branch.tensors)


def _reach_of(
    graph: Graph,
    node: int,
    join: Tensor,
    reach: dict[int, int],
    bent: set[int],
    jumps: dict[int, Residual],
    found: dict[int, list[Residual]],
    entries: set[Tensor],
) -> tuple[int, bool]:
    """Return which paths lead to a node's output, and whether something on them is not linear."""
    block = jumps.get(node)
    if block is not None:
        sources: list[Tensor] = [block.join, *block.entries]
    else:
        sources = [(source, number) for source, number, _ in graph.inputs[node] if not graph.parametric[source]]
    masks = []
    bends = False
    for tensor in sources:
        if tensor == join:
            masks.append(PURE)
        elif tensor[0] in reach:
            masks.append(reach[tensor[0]])
            bends |= tensor[0] in bent
        elif tensor[0] < join[0]:
            entries.add(tensor)
    if not masks:
        return 0, False
    union = 0
    for mask in masks:
        union |= mask
    residuals = found.get(node)
    if residuals and residuals[0].kind != "concat":
        return _past_sum(residuals, join, reach, union, bends)
    return _past_operation(graph, node, len(masks), union, bends)


def _past_sum(
    residuals: list[Residual], join: Tensor, reach: dict[int, int], union: int, bends: bool
) -> tuple[int, bool]:
    """A residual block hands its stream on and adds work to it, whatever its gates do in between."""
    stream = residuals[0].join
    mask = PURE if stream == join else reach.get(stream[0], 0)
    if not mask:
        return union, bends
    if residuals[0].link.projection:
        mask = WORKED
    return mask | WORKED, True


def _past_operation(graph: Graph, node: int, num_dependent: int, union: int, bends: bool) -> tuple[int, bool]:
    effect = graph.effects[node]
    product = num_dependent > 1
    if effect is Effect.PROJECT:
        weighted = not product
        return (WORKED if weighted else _product(union)), bends or product
    if effect in _WORKING:
        return WORKED, bends or effect is not Effect.FOURIER
    if effect is Effect.NORM:
        return _without(union, PURE | REWEIGHED, NORMED), bends
    if effect is Effect.POOL:
        return _without(union, PURE | REWEIGHED | NORMED, POOLED), bends
    if effect is Effect.REDUCE:
        return _product(union), bends or graph.names[node] not in {"Sum", "Mean", "Cumsum"}
    if effect is Effect.SCALE:
        return (_product(union) if product else union), bends or product or graph.names[node] == "Pow"
    if effect in _LINEAR:
        return union, bends or (product and graph.names[node] in {"Addcmul", "Addcdiv"})
    return (_product(union) if product else union), True


_WORKING = frozenset({Effect.ATTEND, Effect.RECUR, Effect.FOURIER, Effect.OPAQUE})
_LINEAR = frozenset({Effect.HAND_ON, Effect.PART, Effect.JOIN, Effect.ADD, Effect.RESAMPLE})


def _product(mask: int) -> int:
    return _without(mask, PURE, REWEIGHED)


def _without(mask: int, gone: int, instead: int) -> int:
    return (mask & ~gone) | instead if mask & gone else mask


def _upsampling(graph: Graph, node: int) -> bool:
    return graph.names[node] == "Convolution" and bool(graph.saved(node, "transposed"))


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
