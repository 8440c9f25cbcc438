"""What a branch does: the work between the join and the sum."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gradscope.probe.structure.chain import resamples
from gradscope.probe.structure.graph import Graph, Tensor
from gradscope.probe.structure.lineage import unshaped
from gradscope.probe.structure.operations import Effect
from gradscope.probe.structure.parts import part_of
from gradscope.probe.structure.region import NORMED, POOLED, PURE, REWEIGHED, WORKED, Region
from gradscope.probe.structure.terms import Product, Term

if TYPE_CHECKING:
    from gradscope.probe.structure.residual import Residual


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
        self.elsewhere: set[int] = set()
        """Nodes to which all paths go through the sum of another stream."""
        self.beneath: set[int] = set()
        """Nodes to which all paths go through a larger input of the model."""
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
            self.region.beside.add(node)
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
        if all(tensor[0] in self.elsewhere for tensor in dependent):
            self.elsewhere.add(node)
        if all(tensor[0] in self.beneath for tensor in dependent) or self._meets_larger(node, sources, dependent):
            self.beneath.add(node)
        self.region.normed |= effect is Effect.NORM
        differs = self.graph.names[node] in {"Sub", "Rsub"} and _union(masks) & PURE and _union(masks) & POOLED
        self.region.differs |= bool(differs)
        if curved or curves:
            self.curved.add(node)
        deep = effect in _DEEP or node in self.region.residuals or _sums_attention(self.graph, node)
        if bent or deep or (curved and effect is Effect.PROJECT):
            self.bent.add(node)
        self._resolution(node, [tensor[0] for tensor in dependent])

    def _meets_larger(self, node: int, sources: list[Tensor], dependent: list[Tensor]) -> bool:
        """Tell whether a small input of the model only meets a larger one there: the noise level of a sample, say."""
        if not self.graph.is_raw(node) or len(sources) == len(dependent):
            return False
        sizes = {tensor: math.prod(self.graph.shape(tensor) or ()) for tensor in sources}
        return max(sizes[tensor] for tensor in dependent) < max(sizes.values())

    def _note_part(self, node: int) -> None:
        if self.graph.effects[node] is Effect.PART and self.graph.names[node] in _TELLING:
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
        self.region.linear = len(ends) == 1 and ends[0] not in self.curved
        self.region.modulates = all(node in self.elsewhere for node in ends)
        self.region.conditions = all(node in self.beneath for node in ends)
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
            if _bypasses(self.graph, residual, self.region.join):
                self.elsewhere.add(node)
            return _union(masks) | WORKED
        return WORKED if residual.link.projection else stream | WORKED

    def _grows(self, node: int) -> int:
        """Return -1 where a node makes a tensor larger that was smaller than the stream, 1 where it was as large."""
        resampling = resamples(self.graph, node)
        if not resampling and (self.graph.effects[node] not in _GROWING or "Pad" in self.graph.names[node]):
            return 0  # a border is no finer resolution
        before, after = self.graph.shape(self.graph.inputs[node][0][:2]), self.graph.shape((node, 0))
        if before is None or after is None or math.prod(after) <= math.prod(before):
            return 0
        if math.prod(before) < self.size:
            return -1
        return int(resampling)


def _bypasses(graph: Graph, residual: Residual, tensor: Tensor) -> bool:
    """Tell whether another block's branch is computed from its own stream in other ways than through a tensor.

    A position, a score or a state handed on only modulates a block; in a reversible coupling it is all the block sees.
    So it is where the tensor is no stream but what that block adds to its own (the steps of a Runge-Kutta method).
    """
    if not residual.region.reach & PURE and any(_hands_on(graph, end, tensor) for end in residual.branch.tensors):
        return True
    reached = {residual.join}
    for node in residual.region.nodes:
        if node != tensor[0] and any((s, n) in reached for s, n, _ in graph.inputs[node]):
            reached.update((node, number) for number in {n for _, _, n in graph.consumers[node]} | {0})
    return any(end in reached for end in residual.branch.tensors)


def _hands_on(graph: Graph, end: Tensor, tensor: Tensor) -> bool:
    """Tell whether one tensor is another, scaled or reshaped at most."""
    while end != tensor:
        data = graph.data(end[0])
        if end[0] <= tensor[0] or len(data) != 1 or graph.effects[end[0]] not in {Effect.HAND_ON, Effect.SCALE}:
            return False
        end = data[0]
    return True


def _past_operation(graph: Graph, node: int, masks: list[int]) -> tuple[int, bool]:
    """Return which paths lead out of an operation, and whether it is not linear in the stream."""
    effect = graph.effects[node]
    union = _union(masks)
    product = len(masks) > 1
    if effect is Effect.PROJECT:
        mixed = product or (len(graph.data(node)) > 1 and not _has_made_weights(graph, node))
        mixed = mixed and not _attends(graph, node)
        return (_product(union) if mixed else WORKED), product
    if effect in _WORKING:
        return WORKED, effect is not Effect.FOURIER
    if effect is Effect.NORM:
        return _without(union, PURE | REWEIGHED, NORMED), False
    if effect is Effect.POOL:
        return _without(union, PURE | REWEIGHED | NORMED, POOLED), False
    if _sums_attention(graph, node):
        return WORKED, True
    if effect is Effect.REDUCE:
        return _product(union), graph.names[node] not in {"Sum", "Mean", "Cumsum"}
    if effect is Effect.SCALE:
        return (_product(union) if product else union), product
    if effect is Effect.JOIN or graph.names[node] in {"Sub", "Rsub"}:
        # A part of the stream handed on beside worked ones, or a difference from it (f(x) - x), is part of the work.
        return (union & ~PURE if union & (WORKED | POOLED) else union), False
    if effect in _LINEAR:
        return union, product and graph.names[node] in {"Addcmul", "Addcdiv"}
    return (_product(union) if product else union), True


def _attends(graph: Graph, node: int) -> bool:
    """Tell whether a product of matrices weighs one with a softmax: an attention written by hand."""
    return any(graph.names[unshaped(graph, tensor)[0]] == "Softmax" for tensor in graph.data(node))


def _has_made_weights(graph: Graph, node: int) -> bool:
    """Tell whether a product of matrices is with weights that a layer has computed: its last axis made two of."""
    for operand in graph.data(node):
        tensor, matrix = operand, (graph.shape(operand) or ())[-2:]
        while graph.names[tensor[0]] in _VIEWS and len(graph.data(tensor[0])) == 1:
            tensor = graph.data(tensor[0])[0]
        flat = graph.shape(tensor)
        if flat and min(matrix, default=1) > 1 and math.prod(matrix) == flat[-1]:
            return True
    return False


def _sums_attention(graph: Graph, node: int) -> bool:
    """Tell whether a sum is over what a softmax weighs: an attention written as a product and a sum.

    In a graph the messages to one node are added up, each with a weight of its own, however that is normalised.
    """
    if graph.names[node] in _GATHERING:
        values = [graph.data(source) for source, _ in graph.data(node) if graph.names[source] == "Mul"]
        return any(len(factors) > 1 and graph.shape(factors[0]) != graph.shape(factors[1]) for factors in values)
    if graph.names[node] != "Sum":
        return False
    product = graph.data(node)[0][0]
    factors = graph.data(product) if graph.names[product] == "Mul" else []
    softmaxes = [unshaped(graph, factor)[0] for factor in factors]
    return len(factors) > 1 and sum(graph.names[softmax] == "Softmax" for softmax in softmaxes) == 1


def _union(masks: list[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


_TELLING = frozenset({"Index", "Select", "Slice", "Split", "Unbind"})
"""Operations that may tell which part of a tensor they take."""
_WORKING = frozenset({Effect.ATTEND, Effect.RECUR, Effect.FOURIER, Effect.OPAQUE})
_GATHERING = frozenset({"IndexAdd", "ScatterAdd", "ScatterReduce"})
"""Sums into the elements of a tensor that an index names."""
_VIEWS = frozenset({"View", "UnsafeView", "ReshapeAlias", "Mul", "Div"})
_DEEP = frozenset({Effect.ATTEND, Effect.RECUR, Effect.OPAQUE})
_LINEAR = frozenset({Effect.HAND_ON, Effect.PART, Effect.ADD, Effect.RESAMPLE})
_GROWING = frozenset({Effect.HAND_ON, Effect.PART})


def _product(mask: int) -> int:
    return _without(mask, PURE, REWEIGHED)


def _without(mask: int, gone: int, instead: int) -> int:
    return (mask & ~gone) | instead if mask & gone else mask
