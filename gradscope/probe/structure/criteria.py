"""What makes a sum of a stream and something computed from it a residual addition, and which look-alikes do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradscope.probe.structure.chain import FactorOf, Link
from gradscope.probe.structure.graph import Graph, Tensor
from gradscope.probe.structure.lineage import (
    MAX_UNARY,
    depends_on,
    mixed_streams,
    projected_from,
    settled_from,
    unshaped,
    weights_of,
)
from gradscope.probe.structure.operations import Effect
from gradscope.probe.structure.parts import resolved
from gradscope.probe.structure.region import PURE, WORKED, Region
from gradscope.probe.structure.terms import Term
from gradscope.probe.structure.trace import Trace

if TYPE_CHECKING:
    from gradscope.probe.structure.residual import Residual


def concatenates(graph: Graph, residual: Residual) -> bool:
    """Tell whether a concatenation keeps a stream beside the work on it: not the parts of one tensor put together."""
    link, region = residual.link, residual.region
    if not region.works or link.projection or link.gates or link.sums or region.reach & PURE:
        return False
    return not link.parts or not region.disjoint(link.parts) or _merges_halves(graph, residual.join, link, region)


def adds_to_stream(graph: Graph, residual: Residual, factor_of: FactorOf, *, goes_on: bool = False) -> bool:
    """Tell whether what lies on skip and branch makes a residual addition. Each line is a look-alike it is not.

    Args:
        graph: The graph.
        residual: The two terms and where they meet.
        factor_of: Returns what a product multiplied by.
        goes_on: A later block adds to this sum, so that the skip is a stream: where it has an activation of its own,
            where it is projected beside a branch with residual sums inside, where both come from one projected tensor,
            where all that its branch sees of it has gone through another stream.
    """
    join, skip, branch = residual.join, residual.skip, residual.branch
    link, region = residual.link, residual.region
    if not region.works or (link.sign * skip.sign < 0 and not _is_turned(graph, residual.node)):
        return False  # rotary embedding, polynomials, biases; a difference f(x) - x
    if _is_one_layer(link, region) or (region.reweighs and (link.scale is None or not region.reach & WORKED)):
        return False  # the D of a state space, a normalisation written by hand
    if _reads_another_part(graph, join, link, region):
        return False  # another time step, another split
    if region.conditions or (region.modulates and not goes_on) or _is_handed_on(residual):
        return False  # a noise level, or a score, position or state handed from branch to branch
    if not goes_on and _inside_unit(graph, join, region):
        return False  # an operand of an attention or a gated unit
    if not link.resampled and _fuses_scales(residual):
        return False
    if region.reach & PURE and (link.sums or link.projection or not region.residuals or _averages(link, skip)):
        return False  # two streams that meet, or what several blocks have left of one, averaged
    if link.projection and (link.sums or link.gates or not region.bends or _adds_heads(residual)):
        return False  # a sum of branches, an adapter, a re-parameterised layer, heads of consecutive layers
    scales = link.projection and region.residuals and not _only_resizes(graph, link)
    if (link.bent or scales) and not (goes_on and (link.bent or _is_closed(residual))):
        return False  # two branches, two scales of a pyramid
    if link.projection and (not region.activated or weights_of(graph, link.nodes) & weights_of(graph, region.nodes)):
        return False  # the terms of a polynomial, W x + (V x)^2; a step of a loop that looks at the same tensor again
    if isinstance(graph.nodes[join[0]], Trace) and region.residuals and not _is_worked_on(graph, region):
        return False  # a mask or a table that many blocks use
    if link.gates and region.weighs_only(factor_of):
        return False  # two tensors weighted by attention to both
    return all(_gate_counts(graph, join, gate, branch, region) for gate in link.gates)


def _averages(link: Link, skip: Term) -> bool:
    """Tell whether tensors are weighed by learned numbers, or stacked and summed: an average over depth (ELMo)."""
    return bool(skip.passed) or (link.scale is None and not link.gates)


def _is_handed_on(residual: Residual) -> bool:
    """Tell whether blocks on the branch only add the join to something, and it is none of their streams."""
    region = residual.region
    return bool(region.residuals) and region.only_added and not _is_query(residual)


def _is_query(residual: Residual) -> bool:
    """Tell whether a layer works on a stream with a position added to it, and what is added to the stream is work.

    The picture that looks at points (SAM) is read by an attention in no other way. Of stream and position the position
    is added to what blocks have left, not to work.
    """
    region, graph = residual.region, residual.region.graph
    sums = set(region.residuals)
    if any(node in sums for end in residual.branch.tensors for node in settled_from(graph, end)):
        return False
    added = [(node, 0) for node, _ in region.readers if graph.effects[node] is Effect.ADD]
    return any(_is_projected(graph, tensor) for tensor in added)


def _is_projected(graph: Graph, tensor: Tensor) -> bool:
    """Tell whether a layer with weights reads a tensor, in another shape maybe."""
    stack = [tensor]
    while stack:
        for node, _ in graph.readers(stack.pop()):
            weights = [source for source, _, _ in graph.inputs[node] if graph.parametric[source]]
            if graph.effects[node] is Effect.PROJECT and weights:
                return True
            if graph.effects[node] is Effect.HAND_ON:
                stack.append((node, 0))
    return False


def _only_resizes(graph: Graph, link: Link) -> bool:
    """Tell whether a skip interpolates the stream and does nothing else: a small picture under its details."""
    effects = {graph.effects[node] for node in link.nodes}
    return Effect.RESAMPLE in effects and effects <= {Effect.RESAMPLE, Effect.HAND_ON}


def _is_one_layer(link: Link, region: Region) -> bool:
    """Tell whether a learned factor on the skip and a linear branch make one layer: the D of a convolved state."""
    learned = link.scale is None and not (link.gates or link.projection)
    return learned and region.linear and not region.normed


def _is_turned(graph: Graph, node: int) -> bool:
    """Tell whether a sum is negated before anything else is done with it: -(-x - f(x)) is x + f(x)."""
    readers = graph.consumers[node]
    return len(readers) == 1 and graph.names[readers[0][0]] == "Neg"


def couples(residual: Residual) -> bool:
    """Tell whether a sum adds work on one part of a tensor to another part, as the first of two couplings does."""
    link, region = residual.link, residual.region
    plain = not (link.projection or link.gates or link.sums or region.residuals)
    return plain and region.works and len(link.parts) == 1 and region.disjoint(link.parts)


def closes_coupling(graph: Graph, later: Residual, earlier: Residual) -> bool:
    """Tell whether a later sum adds work on an earlier one to the part that the earlier one worked on."""
    join = later.join
    is_part = graph.effects[join[0]] is Effect.PART and earlier.join in graph.data(join[0])
    return is_part and earlier.node in later.region.members and bool(set(graph.readers(join)) & set(_begins(earlier)))


def swaps(graph: Graph, later: Residual, earlier: Residual) -> bool:
    """Tell whether of two couplings in a row each adds work on one half to the other half (Dinh 2015, NICE)."""
    kept = later.link.previous
    if kept is None or later.link.length != 1:
        return False
    worked = {resolved(graph, tensor)[0] for tensor in _parts_worked_on(later)}
    return worked == {earlier.node} and resolved(graph, kept.tensor) in _parts_worked_on(earlier)


def _parts_worked_on(residual: Residual) -> set[Tensor]:
    """The parts of a tensor that the branch of a coupling reads."""
    region, graph = residual.region, residual.region.graph
    parts = {node for node, _ in region.readers if graph.effects[node] is Effect.PART}
    return {(part, number) for part in parts for reader, _, number in graph.consumers[part] if reader in region.members}


def _begins(residual: Residual) -> list[tuple[int, int]]:
    """What on the branch reads the parts of the tensor at its beginning."""
    region, graph = residual.region, residual.region.graph
    parts = [node for node, _ in region.readers if graph.effects[node] is Effect.PART]
    return [
        (reader, position)
        for part in parts
        for reader, position, _ in graph.consumers[part]
        if reader in region.members
    ]


def _is_closed(residual: Residual) -> bool:
    """Tell whether nothing but this sum uses what the branch computes."""
    return _serves_sum(residual, residual.region.nodes)


def _adds_heads(residual: Residual) -> bool:
    """Tell whether the branch's layers serve others too before its last one, and no layer works on the sum."""
    region, graph = residual.region, residual.region.graph
    last = max((node for node in region.nodes if graph.effects[node] is Effect.PROJECT), default=residual.node)
    alone = _serves_sum(residual, [node for node in region.nodes if node < last])
    return not alone and not _leads_to_layer(graph, residual.node)


def _leads_to_layer(graph: Graph, node: int) -> bool:
    """Tell whether a layer works on a tensor soon, as it does on a stream; heads are only added up."""
    stack, seen = [node], {node}
    while stack and len(seen) < MAX_UNARY:
        for reader, _, _ in graph.consumers[stack.pop()]:
            if graph.effects[reader] in _LAYERS:
                return True
            if reader not in seen:
                seen.add(reader)
                stack.append(reader)
    return False


_LAYERS = frozenset({Effect.PROJECT, Effect.NORM, Effect.ATTEND, Effect.RECUR})


def _serves_sum(residual: Residual, nodes: list[int]) -> bool:
    region, graph = residual.region, residual.region.graph
    inside = {*region.members, *residual.link.nodes, *residual.adders}
    return all(
        reader in inside or region.holds(reader, (node, number)) or not graph.live[reader]
        for node in nodes
        for reader, _, number in graph.consumers[node]
    )


def _fuses_scales(residual: Residual) -> bool:
    """Tell whether a sum puts maps of two resolutions together, with a lateral layer or without."""
    link, region = residual.link, residual.region
    return region.finer or (region.fresh and not _is_detour(residual)) or (region.refined and link.projection)


def _is_detour(residual: Residual) -> bool:
    """Tell whether a branch at a coarser resolution is one block that serves this sum alone, not a pyramid's level."""
    link, region = residual.link, residual.region
    return not (link.sums or link.projection or region.residuals) and _is_closed(residual)


def _is_worked_on(graph: Graph, region: Region) -> bool:
    """Tell whether a layer or a block reads the join itself: it is data, not a table to be looked things up in."""
    if any(block.join == region.join for block in region.blocks):
        return True
    stack, seen = [region.join], {region.join}
    while stack:
        for node, _ in region.readers_of(stack.pop()):
            if graph.effects[node] is Effect.PROJECT:
                return True
            if graph.effects[node] in _PREPARING and (node, 0) not in seen:
                seen.add((node, 0))
                stack.append((node, 0))
    return False


_PREPARING = frozenset({Effect.HAND_ON, Effect.NORM, Effect.SCALE})


def _reads_another_part(graph: Graph, join: Tensor, link: Link, region: Region) -> bool:
    """Tell whether skip and branch read parts of the join that have nothing to do with each other.

    Halves that are merged again do, and so do streams that were mixed before one of them is read.
    """
    if not link.parts or not region.disjoint(link.parts) or _merges_halves(graph, join, link, region):
        return False
    return not any(mixed_streams(graph, unshaped(graph, join)[0]))


def _inside_unit(graph: Graph, join: Tensor, region: Region) -> bool:
    """Tell whether join and branch combine projections of one tensor: query, key, value or gate of one unit."""
    origin = projected_from(graph, join)
    if origin is None or not region.entries:
        return False
    sums = set(region.residuals)
    return any(
        projected_from(graph, entry) == origin and not any(node in sums for node, _ in graph.readers(entry))
        for entry in region.entries  # one that a residual sum on the branch adds to is a stream, no operand
    )


def _merges_halves(graph: Graph, join: Tensor, link: Link, region: Region) -> bool:
    """Tell whether a tensor is split in two, one half worked on and added to the other, and neither used elsewhere."""
    readers = graph.readers(join)
    if link.projection or link.length != 1 or len(readers) != 1 or graph.effects[readers[0][0]] is not Effect.PART:
        return False
    split = readers[0][0]
    numbers = [number for _, _, number in graph.consumers[split]]
    kept, worked = link.previous_number, [number for number in set(numbers) if number != link.previous_number]
    if len(worked) != 1 or numbers.count(kept) != 1:
        return False
    return all(reader in region.members for reader, _ in graph.readers((split, worked[0])))


def _gate_counts(graph: Graph, join: Tensor, gate: Tensor, branch: Term, region: Region) -> bool:
    """Tell whether a data-dependent factor on the skip makes a gated residual.

    It does where it is 1 - g with g on the branch, or where it depends on the stream and the branch is one block long.
    Where the factor is the stream's like, and no gate, x f(x) + g(x) is a polynomial.
    """
    if branch.convex or region.shares_gate(gate):
        return True
    alike = graph.shape(gate) == graph.shape(join) and _is_plain(graph, gate)
    return not (region.residuals or alike) and depends_on(graph, gate, join)


def _is_plain(graph: Graph, gate: Tensor) -> bool:
    """Tell whether a factor comes out of a layer, a product or a sum as it is, with no activation that makes a gate."""
    for _ in range(MAX_UNARY):
        data = graph.data(gate[0])
        if graph.effects[gate[0]] is Effect.PROJECT or len(data) > 1:
            return True
        if len(data) != 1 or graph.effects[gate[0]] not in {Effect.HAND_ON, Effect.PART, Effect.SCALE, Effect.ADD}:
            return False
        gate = data[0]
    return False
