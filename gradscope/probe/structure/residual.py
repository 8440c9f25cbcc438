"""Which additions are residual: of two terms one, the skip, is the stream itself, the other, the branch, works on it.

For two terms A and B of a sum, A is the skip where - up to operations that hand a stream on (reshape, cast, scale,
dropout, slice, projection shortcut, earlier residual sums) - it is a tensor that B is computed from. The first such
tensor going back from A is the *join*. What lies between the join and B is the branch, and it must do work:
something with weights, an attention, a transform. The search goes back from both terms in execution order and stops at
the join, so that it costs no more than the branch is long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gradscope.probe.structure.additions import AdditionRecorder
from gradscope.probe.structure.chain import FactorOf, Link
from gradscope.probe.structure.criteria import adds_to_stream, concatenates
from gradscope.probe.structure.graph import Graph, Tensor, Trace
from gradscope.probe.structure.lineage import settled_from
from gradscope.probe.structure.meeting import Search
from gradscope.probe.structure.places import Places, ancestry
from gradscope.probe.structure.region import PURE, Region
from gradscope.probe.structure.terms import SUMS, Product, Term, terms_of
from gradscope.probe.watching.calls import Call


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
        factor_of: Returns the factor a product node applies, where the forward saw one.
        owner: Returns the call that a node ran in.
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
        streams = {
            end
            for one in self._all()
            for tensor in (one.join, *one.branch.tensors)
            for end in settled_from(self.graph, tensor)
        }
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

    def decide_concatenation(self, node: int) -> None:
        """Tell whether a concatenation puts a branch next to the stream it is computed from (dense blocks, U-Nets)."""
        tensors = sorted({(source, number) for source, number, _ in self.graph.inputs[node]})
        tensors = [tensor for tensor in tensors if not self.graph.parametric[tensor[0]]]
        if len(tensors) < 2:  # noqa: PLR2004 - a stream and a branch
            return
        # Of many the last two: what lies before them was put there by earlier concatenations.
        for skip, branch in ((tensors[-2], tensors[-1]), (tensors[-1], tensors[-2])):
            found = self._search(node, Term((skip,), 0), Term((branch,), 1))
            if found is not None and concatenates(self.graph, found):
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
        return residual if residual is not None and adds_to_stream(self.graph, residual) else None

    def _search(self, node: int, skip: Term, branch: Term) -> Residual | None:
        limit = _CHEAP if self.spent > self.budget else self.budget
        search = Search(self.graph, self.found, self.factor_of, limit)
        meeting = search.meet(skip, branch)
        self.spent += len(search.visited)
        if meeting is None:
            return None
        return Residual(node, meeting.link.tensor, skip, branch, meeting.link, meeting.region)


def _rank(residual: Residual) -> tuple[int, ...]:
    link = residual.link
    return (bool(residual.region.reach & PURE), link.projection, len(link.gates), len(link.sums), link.length)


def find_residuals(
    graph: Graph, recorder: AdditionRecorder, places: Places, *, unseen: Callable[[int], bool]
) -> dict[int, list[Residual]]:
    """Find the residual additions of a graph, by node.

    Args:
        graph: The graph behind the losses.
        recorder: What the forward saw.
        places: Who ran what.
        unseen: Tells whether a node ran where the recorder could not look (TorchScript): its sums count as well.
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
