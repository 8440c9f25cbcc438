"""What makes a sum of a stream and something computed from it a residual addition, and which look-alikes do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradscope.probe.structure.chain import Link
from gradscope.probe.structure.graph import Graph, Tensor, Trace
from gradscope.probe.structure.lineage import depends_on, projected_from, weights_of
from gradscope.probe.structure.operations import Effect
from gradscope.probe.structure.region import PURE, WORKED, Region
from gradscope.probe.structure.terms import Term

if TYPE_CHECKING:
    from gradscope.probe.structure.residual import Residual


def concatenates(graph: Graph, residual: Residual) -> bool:
    """Tell whether a concatenation keeps a stream beside the work on it: not the parts of one tensor put together."""
    link, region = residual.link, residual.region
    if not region.works or link.projection or link.gates or link.sums or region.reach & PURE:
        return False
    return not link.parts or not region.disjoint(link.parts) or _merges_halves(graph, residual.join, link, region)


def adds_to_stream(graph: Graph, residual: Residual) -> bool:
    """Tell whether what lies on skip and branch makes a residual addition. Each line is a look-alike it is not."""
    join, skip, branch = residual.join, residual.skip, residual.branch
    link, region = residual.link, residual.region
    if not region.works or link.sign * skip.sign < 0:
        return False  # rotary embedding, polynomials, biases; a difference f(x) - x
    if region.reweighs and (link.scale is None or not region.reach & WORKED):
        return False  # the D of a state space, a normalisation written by hand
    if link.parts and region.disjoint(link.parts) and not _merges_halves(graph, join, link, region):
        return False  # another time step, another split
    if region.modulates or (region.residuals and region.only_added) or _inside_unit(graph, join, region):
        return False  # a score, position or state handed from branch to branch; an operand of an attention
    if not link.resampled and (region.finer or region.fresh or (region.refined and link.projection)):
        return False  # multi-scale fusion
    if region.reach & PURE and (link.sums or link.projection or not region.residuals):
        return False  # two streams that meet
    if link.projection and (link.sums or link.gates or not region.bends or region.residuals):
        return False  # a sum of branches, an adapter, a re-parameterised layer
    if link.projection and weights_of(graph, link.nodes) & weights_of(graph, region.nodes):
        return False  # a step of a loop that looks at the same tensor again
    if isinstance(graph.nodes[join[0]], Trace) and region.residuals:
        return False  # a mask or a table that many blocks use
    if link.gates and region.weighs_only:
        return False  # two tensors weighted by attention to both
    return all(_gate_counts(graph, join, gate, branch, region) for gate in link.gates)


def _inside_unit(graph: Graph, join: Tensor, region: Region) -> bool:
    """Tell whether join and branch combine projections of one tensor: query, key, value or gate of one unit."""
    origin = projected_from(graph, join)
    if origin is None or not region.entries:
        return False
    return any(projected_from(graph, entry) == origin for entry in region.entries)


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
    """
    if branch.convex or region.shares_gate(gate):
        return True
    return not region.residuals and depends_on(graph, gate, join)
