"""Which additions are residual: of two terms one, the skip, is the stream itself, the other, the branch, works on it.

For two terms A and B of a sum, A is the skip where - up to operations that hand a stream on (reshape, cast, scale,
dropout, slice, projection shortcut, earlier residual sums) - it is a tensor that B is computed from. The first such
tensor going back from A is the *join*. What lies between the join and B is the branch, and it must do work:
something with weights, an attention, a transform. The search goes back from both terms in execution order and stops at
the join, so that it costs no more than the branch is long.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from gradscope.probe.structure.additions import AdditionRecorder, Place
from gradscope.probe.structure.chain import FactorOf, Link, factors_in
from gradscope.probe.structure.criteria import adds_to_stream, closes_coupling, concatenates, couples, swaps
from gradscope.probe.structure.gating import gating_of
from gradscope.probe.structure.graph import Graph, Tensor
from gradscope.probe.structure.injections import Injections
from gradscope.probe.structure.lineage import settled_from
from gradscope.probe.structure.meeting import Search
from gradscope.probe.structure.operations import Effect
from gradscope.probe.structure.parts import resolved
from gradscope.probe.structure.places import Places
from gradscope.probe.structure.region import PURE, Region
from gradscope.probe.structure.stacks import is_taken_apart
from gradscope.probe.structure.terms import PRODUCTS, SUMS, Product, Term, terms_of
from gradscope.probe.structure.trace import Trace
from gradscope.probe.watching.calls import Call


@dataclass
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

    @cached_property
    def gating(self) -> frozenset[int] | None:
        """The operations that make a gate of the skip from the stream; None where they are too many."""
        return gating_of(self.region.graph, self.link)

    @cached_property
    def inside(self) -> frozenset[int]:
        """The operations between join and sum, on branch and skip: a gate of both is no use elsewhere."""
        return frozenset({*self.region.nodes, *self.link.nodes, *(self.gating or ()), *self.adders})

    @property
    def adders(self) -> frozenset[int]:
        """The operations that make one sum of skip and branch: the sum, and what stacked and weighed the two before."""
        return frozenset({self.node, *self.skip.passed, *self.branch.passed})


_BUDGET_PER_NODE = 4
"""Operations looked at on branches, per operation of the graph. Networks need 1 to 3, since branches hardly overlap;
a loop that compares each step with the first would need as many as it has steps."""
_LEAST_BUDGET = 20_000
"""Operations that may be looked at in any graph: small ones are searched in full."""
LONGEST_ONCE_SPENT = 300
"""Once that is spent, no branch longer than this is followed."""
_TELLING = 16
"""Where so many additions of one line of one module were none, that line is a loop over time (a scan, a recurrent
cell): its next additions are followed no further than one turn, or each would be followed back to the first step."""
_LONGEST_IN_LOOP = 64
"""Operations of such a turn, on skip and branch; a recurrent cell has about twenty."""


class Finder:
    """Decide for each addition of a graph, in execution order, whether it is residual.

    Args:
        graph: The graph.
        factor_of: Returns the factor a product node applies, where the forward saw one.
        owner: Returns the call that a node ran in.
    """

    def __init__(self, graph: Graph, factor_of: FactorOf, owner: Callable[[int], Call | None]) -> None:
        self.graph = graph
        self.found: dict[int, list[Residual]] = {}
        self._injections = Injections(graph, self.found, owner)
        self.concatenations: dict[int, list[Residual]] = {}
        self._starting: dict[int, list[Residual]] = {}
        """Sums that are residual where a later block adds to them."""
        self._coupling: dict[int, list[Residual]] = {}
        """Sums of two parts of one tensor that are residual where the other part is added to next."""
        self._last_coupling: list[Residual] = []
        self._loops = False
        """The sum that is looked at belongs to a loop over time."""
        self.spent = 0
        self.gave_up = 0
        """Sums whose branch was too long to be followed once the budget was spent."""
        self.budget = max(_BUDGET_PER_NODE * len(graph.nodes), _LEAST_BUDGET)
        self.factor_of = factor_of
        self._in_vain: Counter[Place | None] = Counter()

    def decide(self, node: int, terms: list[Term], place: Place | None) -> None:
        """Find the residual additions that one node executes: one, or one for each branch of a summed stack."""
        self._enter(place)
        if self._injections.feeds_branch(node, terms):
            return
        pairs: list[list[Residual]] = []
        # The stream is older than what is computed from it; where that is plain to see, the search ends.
        for skip in sorted(terms, key=lambda term: max(term.tensors)):
            rest = [term for term in terms if term is not skip]
            pairs.append([found for term in rest if (found := self._search(node, skip, term))])
            if len(pairs[-1]) == len(rest) and not any(map(any, map(_rank, pairs[-1]))):
                break
        best = _best(pairs, lambda one: adds_to_stream(self.graph, one, self.factor_of))
        if best:
            self._in_vain[place] = 0
            self._take(node, best)
            return
        likely = _best(pairs, lambda one: adds_to_stream(self.graph, one, self.factor_of, goes_on=True))
        if likely:
            self._starting[node] = likely
        elif couplings := _best(pairs, couples):
            self._couple(node, couplings)

    def _enter(self, place: Place | None) -> None:
        """Note that a sum or a concatenation is looked at, and whether it belongs to a loop over time."""
        self._loops = self._in_vain[place] >= _TELLING
        self._in_vain[place] += place is not None

    def _couple(self, node: int, couplings: list[Residual]) -> None:
        """Keep a sum of two parts of one tensor in mind, and count it and the one before it where these swap roles."""
        before = self._last_coupling
        self._coupling[node], self._last_coupling = couplings, couplings
        if before and swaps(self.graph, couplings[0], before[0]):
            for one in (before, couplings):
                self._coupling.pop(one[0].node, None)
                self.found[one[0].node] = one

    def _take(self, node: int, residuals: list[Residual]) -> None:
        """Count a sum, and earlier ones that only this one shows to be residual."""
        self.found[node] = residuals
        for residual in residuals:
            for start in self._continued(residual):
                if start in self._starting:
                    self._take(start, self._starting.pop(start))
            for first in [one for one in self._coupling if one in residual.region.members]:
                if closes_coupling(self.graph, residual, self._coupling[first][0]):
                    self._take(first, self._coupling.pop(first))

    def _continued(self, residual: Residual) -> Iterator[int]:
        """Yield the nodes of the stream that a block adds to, as the block before it may have left them."""
        if residual.link.projection:
            return
        yield from settled_from(self.graph, resolved(self.graph, residual.join))
        if self.graph.effects[residual.join[0]] is Effect.JOIN:
            yield from (source for source, _ in self.graph.data(residual.join[0]))

    def drop_injections(self) -> None:
        """Drop sums that only make the input of a branch."""
        for node in self._injections.among_found():
            del self.found[node]

    def decide_concatenation(self, node: int, place: Place | None) -> None:
        """Tell whether a concatenation puts a branch next to the stream it is computed from (dense blocks, U-Nets)."""
        tensors = sorted({(source, number) for source, number, _ in self.graph.inputs[node]})
        tensors = [tensor for tensor in tensors if not self.graph.parametric[tensor[0]]]
        if len(tensors) < 2:  # noqa: PLR2004 - a stream and a branch
            return
        self._enter(place)
        spent = self.spent
        # Of many the last two: what lies before them was put there by earlier concatenations.
        for skip, branch in ((tensors[-2], tensors[-1]), (tensors[-1], tensors[-2])):
            found = self._search(node, Term((skip,), 0), Term((branch,), 1))
            if found is not None and concatenates(self.graph, found):
                found.concatenates = True
                self.concatenations[node] = [found]
                if self.spent - spent <= _LONGEST_IN_LOOP:
                    self._in_vain[place] = 0
                return

    def _search(self, node: int, skip: Term, branch: Term) -> Residual | None:
        limit = LONGEST_ONCE_SPENT if self.spent > self.budget else self.budget
        limit = _LONGEST_IN_LOOP if self._loops else limit
        search = Search(self.graph, self.found, self.factor_of, limit)
        meeting = search.meet(skip, branch)
        self.spent += search.size
        self.gave_up += search.size > limit and not self._loops
        if meeting is None:
            return None
        return Residual(node, meeting.link.tensor, skip, branch, meeting.link, meeting.region)


def _best(pairs: list[list[Residual]], counts: Callable[[Residual], bool]) -> list[Residual]:
    """Of the terms of a sum take for the skip what most of the others are branches of, then the plainest."""
    best: list[Residual] = []
    for of_skip in pairs:
        found = [residual for residual in of_skip if counts(residual)]
        if len(found) > len(best) or (found and len(found) == len(best) and _rank(found[0]) < _rank(best[0])):
            best = found
    return best


def _rank(residual: Residual) -> tuple[int, ...]:
    link = residual.link
    return (bool(residual.region.reach & PURE), link.projection, len(link.gates), len(link.sums), link.length)


def find_residuals(
    graph: Graph, recorder: AdditionRecorder, places: Places
) -> tuple[dict[int, list[Residual]], int]:
    """Find the residual additions of a graph, by node; and how many pairs of terms were too far apart to be followed.

    Args:
        graph: The graph behind the losses.
        recorder: What the forward saw.
        places: Who ran what.
    """
    finder = Finder(graph, factors_in(graph, recorder.notes.factors), places.owner)
    in_place = frozenset(key for key, addition in recorder.additions.items() if isinstance(key, int))
    for node, name in enumerate(graph.names):
        if not (name == "Cat" or name in SUMS or name in PRODUCTS) or graph.is_raw(node):
            continue
        key = graph.nodes[node] if isinstance(graph.nodes[node], Trace) else int(graph.sequences[node])
        addition = recorder.additions.get(key)
        place = None if addition is None else addition.place
        if name == "Cat":
            finder.decide_concatenation(node, place)
            continue
        # Sums that were not seen to run count as well (TorchScript, vmap), unless a function of torch ran them.
        unseen = key.twin is None if isinstance(key, Trace) else recorder.notes.inside_function(key)
        if addition is None and unseen:
            continue
        terms = terms_of(graph, node, sums_in_place=in_place)
        if len(terms) > 1 and _same_shape(graph, node, terms):
            finder.decide(node, terms, place)
    finder.drop_injections()
    added_up = {node for residuals in finder.found.values() for one in residuals for node in one.adders}
    kept = {
        node: residuals
        for node, residuals in finder.concatenations.items()
        if node not in added_up and not is_taken_apart(graph, node)
    }
    return {**finder.found, **kept}, finder.gave_up


_ANY_SHAPE = frozenset({"CopySlices", "IndexAdd", "IndexPut", "IndexPutImpl", "ScatterAdd", "ScatterReduce"})
"""Sums into some elements of a tensor: the other term has the shape of these."""


def _same_shape(graph: Graph, node: int, terms: list[Term]) -> bool:
    """A stream and its branch have the sum's shape; scores, biases and losses do not."""
    shape = graph.shape((node, 0))
    if shape is None or graph.names[node] in _ANY_SHAPE:
        return True
    if math.prod(shape) <= 1:
        return False
    if terms[0].passed:
        return True  # what is stacked is of one shape, and summed along the stack
    return all(graph.shape(term.tensors[0]) in (shape, None) for term in terms if term.product is Product.NONE)
