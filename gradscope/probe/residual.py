"""Which additions are residual: of two terms one, the skip, is the stream itself, the other, the branch, works on it.

For two terms A and B of a sum, A is the skip where - up to operations that hand a stream on (reshape, cast, scale,
dropout, slice, projection shortcut, earlier residual sums) - it is a tensor that B is computed from. The first such
tensor going back from A is the *join*. What lies between the join and B is the branch, and it must do work:
something with weights, an attention, a transform. The search goes back from both terms in execution order and stops at
the join, so that it costs no more than the branch is long.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gradscope.probe.additions import AdditionRecorder
from gradscope.probe.branch import PURE, WORKED, Region, examine, weighs_only
from gradscope.probe.calls import Call
from gradscope.probe.chain import FactorOf, Link, follow, starts
from gradscope.probe.graph import Graph, Tensor, Trace
from gradscope.probe.normalised import is_normalising
from gradscope.probe.operations import Effect
from gradscope.probe.places import Places, ancestry
from gradscope.probe.terms import SUMS, Product, Term, terms_of


@dataclass(slots=True)
class Residual:
    """A residual addition of the graph.

    Attributes:
        node: The addition.
        join: The stream tensor both terms come from.
        skip: The term that is the stream.
        branch: The term that is computed from it.
        link: What lies on the skip between the sum and the join.
        region: What lies on the branch.
        concatenates: The branch is put next to the stream instead of being added to it.
        recurrent: It adds to a state that is carried through time.
    """

    node: int
    join: Tensor
    skip: Term
    branch: Term
    link: Link
    region: Region
    concatenates: bool = False
    recurrent: bool = False

    @property
    def entries(self) -> tuple[Tensor, ...]:
        """What the branch reads from before the join."""
        return self.region.entries


_BUDGET_PER_NODE = 10
"""Operations looked at on branches, per operation of the graph. Networks need 1 to 3, since branches hardly overlap;
a loop that compares each step with the first would need as many as it has steps."""
_LEAST_BUDGET = 20_000
_CHEAP = 300
"""Once that is spent, no branch longer than this is followed."""


class Finder:
    """Decide for each addition of a graph, in execution order, whether it is residual.

    Args:
        graph: The graph.
        constants: The factor a product node applies, where the forward saw one (see `AdditionRecorder.factors`).
    """

    def __init__(self, graph: Graph, factor_of: FactorOf, owner: Callable[[int], Call | None]) -> None:
        self.graph = graph
        self._owner = owner
        self.found: dict[int, list[Residual]] = {}
        self.concatenations: dict[int, list[Residual]] = {}
        self.spent = 0
        self.budget = max(_BUDGET_PER_NODE * len(graph.nodes), _LEAST_BUDGET)
        self.factor_of = factor_of

    def decide(self, node: int, terms: list[Term]) -> None:
        """Find the residual additions that one node executes: one, or one for each branch of a summed stack."""
        best = self._best(node, terms)
        if best:
            self.found[node] = best

    def drop_injections(self) -> None:
        """Drop sums that only make the input of a branch: x + p in x + f(x + p), with p computed from x.

        Such a sum counts where the stream goes on from it, or where it belongs to a module on the branch.
        """
        streams = {end for one in self._all() for tensor in (one.join, *one.branch.tensors) for end in self._settled(tensor)}
        inner = {
            node
            for outer in self._all()
            for node in outer.region.residuals
            if node not in streams and self.found[node][0].join == outer.join and self._is_apart(node, outer)
        }
        for node in inner:
            del self.found[node]

    def _all(self) -> Iterator[Residual]:
        for residuals in self.found.values():
            yield from residuals

    def _is_apart(self, inner: int, outer: Residual) -> bool:
        """Tell whether an inner sum is written beside the outer one, or adds what does not come from its own module."""
        nodes = self.found[inner][0].region.nodes
        return self._owner(inner) is self._owner(outer.node) or not self._within_call(inner, nodes)

    def _within_call(self, node: int, others: list[int]) -> bool:
        call = self._owner(node)
        return all(call in ancestry(self._owner(other)) for other in others)

    def _settled(self, tensor: Tensor) -> Iterator[int]:
        """Yield the nodes a tensor goes back to through norms and activations alone: the sums it may be made of."""
        for _ in range(_MAX_UNARY):
            yield tensor[0]
            data = self.graph.data(tensor[0])
            if len(data) != 1 or self.graph.effects[tensor[0]] not in _UNARY:
                return
            tensor = data[0]

    def decide_concatenation(self, node: int) -> None:
        """Tell whether a concatenation puts a branch next to the stream it is computed from (dense blocks, U-Nets)."""
        tensors = sorted({(source, number) for source, number, _ in self.graph.inputs[node]})
        tensors = [tensor for tensor in tensors if not self.graph.parametric[tensor[0]]]
        if len(tensors) < 2:  # noqa: PLR2004 - a stream and a branch
            return
        # Of many the last two: what lies before them was put there by earlier concatenations.
        for skip, branch in ((tensors[-2], tensors[-1]), (tensors[-1], tensors[-2])):
            found = self._search(node, Term((skip,), 0), Term((branch,), 1))
            if found is not None and _concatenated(self.graph, found):
                found.concatenates = True
                self.concatenations[node] = [found]
                return

    def _best(self, node: int, terms: list[Term]) -> list[Residual]:
        best: list[Residual] = []
        for skip in terms:
            found = [
                residual
                for branch in terms
                if branch is not skip and (residual := self._pair(node, skip, branch)) is not None
            ]
            if len(found) > len(best) or (found and len(found) == len(best) and _rank(found[0]) < _rank(best[0])):
                best = found
        return best

    def _pair(self, node: int, skip: Term, branch: Term) -> Residual | None:
        residual = self._search(node, skip, branch)
        return residual if residual is not None and _accepted(self.graph, residual) else None

    def _search(self, node: int, skip: Term, branch: Term) -> Residual | None:
        limit = _CHEAP if self.spent > self.budget else self.budget
        visited: set[int] = set()
        meeting = _meet(self.graph, skip, branch, self.found, self.factor_of, visited, limit)
        self.spent += len(visited)
        if meeting is None:
            return None
        join, link, jumps = meeting
        region = examine(self.graph, join, branch, visited, jumps, self.found)
        return Residual(node, join, skip, branch, link, region)


def _rank(residual: Residual) -> tuple[int, ...]:
    link = residual.link
    return (bool(residual.region.reach & PURE), link.projection, len(link.gates), len(link.sums), link.length)


def _meet(
    graph: Graph,
    skip: Term,
    branch: Term,
    found: dict[int, list[Residual]],
    factor_of: FactorOf,
    visited: set[int],
    limit: int,
) -> tuple[Tensor, Link, dict[int, Residual]] | None:
    """Go back from both terms, latest operation first, to the first stream tensor that the branch reads as well.

    The operations of the branch are put into `visited`; the search ends where there are more than `limit`.
    """
    chain: dict[Tensor, Link] = {link.tensor: link for link in starts(skip)}
    read: set[Tensor] = set(branch.tensors)
    outputs: dict[int, list[Tensor]] = {}
    chain_open = {tensor[0] for tensor in chain}
    read_open = {tensor[0] for tensor in read}
    for tensor in chain:
        outputs.setdefault(tensor[0], []).append(tensor)
    heap = [-node for node in chain_open | read_open]
    heapq.heapify(heap)
    queued = chain_open | read_open
    jumps: dict[int, Residual] = {}
    while heap and chain_open and read_open and len(visited) <= limit:
        node = -heapq.heappop(heap)
        links = [chain[tensor] for tensor in outputs.get(node, ())]
        for link in list(links):
            if link.tensor not in read:
                continue
            if not link.gates or examine(graph, link.tensor, branch, visited, jumps, found).works:
                return link.tensor, link, jumps
            links.remove(link)  # what weighs both terms, not the stream
        fresh: list[int] = []
        chain_open.discard(node)
        if links:
            for link in links:
                for longer in follow(graph, link, found, factor_of):
                    if longer.tensor not in chain:
                        chain[longer.tensor] = longer
                        outputs.setdefault(longer.tensor[0], []).append(longer.tensor)
                        chain_open.add(longer.tensor[0])
                        fresh.append(longer.tensor[0])
        if node in read_open:
            read_open.discard(node)
            visited.add(node)
            sources = _sources(graph, node, found, chain_open, jumps)
            read.update(sources)
            read_open.update(source for source, _ in sources)
            fresh.extend(source for source, _ in sources)
        for source in fresh:
            if source not in queued:
                queued.add(source)
                heapq.heappush(heap, -source)
    return None


def _sources(
    graph: Graph, node: int, found: dict[int, list[Residual]], chain_open: set[int], jumps: dict[int, Residual]
) -> list[Tensor]:
    """What a node of the branch reads. A whole residual block is stepped over where the skip does not lead into it."""
    residuals = found.get(node)
    if residuals and len(residuals) == 1:
        block = residuals[0]
        if not any(block.join[0] < other < node for other in chain_open):
            jumps[node] = block
            return [block.join, *block.entries]
    return [(source, number) for source, number, _ in graph.inputs[node] if not graph.parametric[source]]


def _concatenated(graph: Graph, residual: Residual) -> bool:
    """Tell whether a concatenation keeps a stream beside the work on it: not the parts of one tensor put together."""
    link, region = residual.link, residual.region
    if not region.works or link.projection or link.gates or link.sums or region.reach & PURE:
        return False
    return not link.parts or not region.disjoint(link.parts) or _merges_halves(graph, residual.join, link, region)


def _accepted(graph: Graph, residual: Residual) -> bool:
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
    if link.projection and _weights(graph, link.nodes) & _weights(graph, region.nodes):
        return False  # a step of a loop that looks at the same tensor again
    if isinstance(graph.nodes[join[0]], Trace) and region.residuals:
        return False  # a mask or a table that many blocks use
    if link.gates and weighs_only(region):
        return False  # two tensors weighted by attention to both
    return all(_gate_counts(graph, join, gate, branch, region) for gate in link.gates)


def _weights(graph: Graph, nodes: list[int]) -> set[int]:
    """The leaves behind the weights of some operations."""
    found = set()
    for node in nodes:
        for source, _, _ in graph.inputs[node]:
            while graph.parametric[source] and graph.inputs[source]:
                source = graph.inputs[source][0][0]
            if graph.parametric[source]:
                found.add(source)
    return found


def _merges_halves(graph: Graph, join: Tensor, link: Link, region: Region) -> bool:
    """Tell whether a tensor is split in two, one half worked on and added to the other, and neither used elsewhere."""
    splits = [node for node, _ in graph.readers(join) if graph.effects[node] is Effect.PART]
    if link.projection or len(splits) != 1 or len(graph.readers(join)) != 1:
        return False
    halves: dict[int, int] = {}
    for _, _, number in graph.consumers[splits[0]]:
        halves[number] = halves.get(number, 0) + 1
    return len(halves) == 2 and link.length == 1 and any(  # noqa: PLR2004 - two halves
        number != link.previous_number and all(reader in region.nodes for reader, _ in graph.readers((splits[0], number)))
        for number in halves
    ) and halves.get(link.previous_number, 0) == 1


_UNARY = frozenset({Effect.HAND_ON, Effect.PART, Effect.NORM, Effect.BEND, Effect.SCALE, Effect.ADD})


def _inside_unit(graph: Graph, join: Tensor, region: Region) -> bool:
    """Tell whether join and branch combine projections of one tensor: query, key, value or gate of one unit."""
    origin = _projected_from(graph, join)
    if origin is None or not region.entries:
        return False
    return any(_projected_from(graph, entry) == origin for entry in region.entries)


def _projected_from(graph: Graph, tensor: Tensor) -> Tensor | None:
    """Return what a tensor is a projection of, up to reshapes, norms and activations; None where it is none."""
    for _ in range(_MAX_UNARY):
        node = tensor[0]
        data = graph.data(node)
        if len(data) != 1 and not is_normalising(graph, node):
            return None
        if graph.effects[node] is Effect.PROJECT:
            return _unshaped(graph, data[0]) if data else None
        if graph.effects[node] not in _UNARY:
            return None
        tensor = data[0]
    return None


def _unshaped(graph: Graph, tensor: Tensor) -> Tensor:
    """Return the tensor that another is a reshape of."""
    while graph.effects[tensor[0]] is Effect.HAND_ON and len(graph.data(tensor[0])) == 1:
        tensor = graph.data(tensor[0])[0]
    return tensor


_MAX_UNARY = 12
"""A projection inside of an attention or a gated unit is never further away than this many operations."""


def _gate_counts(graph: Graph, join: Tensor, gate: Tensor, branch: Term, region: Region) -> bool:
    """Tell whether a data-dependent factor on the skip makes a gated residual.

    It does where it is 1 - g with g on the branch, or where it depends on the stream and the branch is one block long.
    """
    if branch.convex or region.shares_gate(gate):
        return True
    return not region.residuals and depends_on(graph, gate, join)


def depends_on(graph: Graph, tensor: Tensor, ancestor: Tensor) -> bool:
    """Tell whether a tensor is computed from another one."""
    if tensor == ancestor:
        return True
    stack, seen = [tensor[0]], {tensor[0]}
    while stack:
        node = stack.pop()
        for source, number, _ in graph.inputs[node]:
            if (source, number) == ancestor:
                return True
            if source > ancestor[0] and source not in seen:
                seen.add(source)
                stack.append(source)
    return False


def find_residuals(
    graph: Graph, recorder: AdditionRecorder, places: Places, *, unseen: Callable[[int], bool]
) -> dict[int, list[Residual]]:
    """Find the residual additions of a graph, by node.

    Args:
        graph: The graph behind the losses.
        recorder: What the forward saw.
        places: Who ran what.
        unseen: Tells whether a node ran where the recorder could not look (TorchScript), so that its sums count as well.
    """
    factors = recorder.factors
    finder = Finder(graph, lambda node: factors.get(int(graph.sequences[node])), places.owner)
    in_place = frozenset(key for key, addition in recorder.additions.items() if isinstance(key, int))
    for node, name in enumerate(graph.names):
        if name == "Cat" and not graph.is_raw(node):
            finder.decide_concatenation(node)
        if name not in SUMS or graph.is_raw(node):
            continue
        key = graph.nodes[node] if isinstance(graph.nodes[node], Trace) else int(graph.sequences[node])
        if key not in recorder.additions and not unseen(node):
            continue
        terms = terms_of(graph, node, sums_in_place=in_place)
        if len(terms) > 1 and _same_shape(graph, node, terms):
            finder.decide(node, terms)
    finder.drop_injections()
    return {**finder.found, **finder.concatenations}


_ANY_SHAPE = frozenset({"CopySlices", "IndexAdd", "ScatterAdd"})


def _same_shape(graph: Graph, node: int, terms: list[Term]) -> bool:
    """A stream and its branch have the sum's shape; scores, biases and losses do not."""
    shape = graph.shape((node, 0))
    if shape is None or graph.names[node] in _ANY_SHAPE:
        return True
    if math.prod(shape) <= 1:
        return False
    return all(graph.shape(term.tensors[0]) in (shape, None) for term in terms if term.product is Product.NONE)
