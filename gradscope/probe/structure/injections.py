"""Sums that only make the input of a branch: an older tensor, or a position, added before the block works."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from gradscope.probe.structure.graph import Graph, Tensor
from gradscope.probe.structure.lineage import MAX_UNARY, depends_on, settled_from
from gradscope.probe.structure.operations import Effect
from gradscope.probe.structure.places import ancestry
from gradscope.probe.structure.region import PURE
from gradscope.probe.structure.terms import SUMS, Product, Term
from gradscope.probe.watching.calls import Call

if TYPE_CHECKING:
    from gradscope.probe.structure.residual import Residual

_FED = 2
"""A tensor that so many operations read is handed to block after block; a long skip is read at its two ends."""
_MOVING = frozenset({Effect.HAND_ON, Effect.SCALE})
_UNARY = frozenset({*_MOVING, Effect.NORM, Effect.BEND})


class Injections:
    """Tell the sums of a graph that feed a branch from those that a stream goes on from.

    Args:
        graph: The graph.
        found: The residual additions found so far, by node.
        owner: Returns the call that a node ran in.
    """

    def __init__(
        self, graph: Graph, found: dict[int, list[Residual]], owner: Callable[[int], Call | None]
    ) -> None:
        self._graph = graph
        self._found = found
        self._owner = owner

    def feeds_branch(self, node: int, terms: list[Term]) -> bool:
        """Tell from what stands around a sum that it feeds a branch: x + e where f(x + e) is added to x next.

        So it is where the stream or the other term has passed a norm or a layer first. What is older than the stream
        and goes to block after block is no skip. That is told without going back along the stream to where the two
        have met last, which a network that adds its input in each block would do from each of its blocks. It looks at
        one block at most.
        """
        plain = [term.tensors[0] for term in terms if term.product is Product.NONE and term.gate is None]
        if len(terms) != 2 or len(plain) != 2 or self._goes_on(node):  # noqa: PLR2004 - a stream and what is fed to it
            return False
        return any(self._is_fed_to(one, other, node) for one, other in (plain, plain[::-1]))

    def _goes_on(self, node: int) -> bool:
        """Tell whether something later is added to a sum itself, or to a norm or an activation of it."""
        graph = self._graph
        return any(
            _adds(graph, reader) and all(source >= node for source, _ in graph.data(reader))
            for reader in _behind(graph, (node, 0), _UNARY)
        )

    def _is_fed_to(self, fed: Tensor, term: Tensor, node: int) -> bool:
        """Tell whether one term of a sum comes from what goes to many blocks, and the other from a younger stream."""
        older = next((tensor for tensor in _before(self._graph, fed) if self._is_fed(tensor)), None)
        return older is not None and any(
            tensor[0] > older[0] and self._is_added_to(tensor, node) for tensor in _before(self._graph, term)
        )

    def _is_added_to(self, stream: Tensor, node: int) -> bool:
        """Tell whether a tensor is what a block has left, and what is added to it next is computed from a sum."""
        graph = self._graph
        if not any(end in self._found for end in settled_from(graph, stream)):
            return False
        later = (reader for reader in _behind(graph, stream, _MOVING) if reader > node and _adds(graph, reader))
        following = next(later, None)
        return following is not None and depends_on(graph, (following, 0), (node, 0))

    def among_found(self) -> set[int]:
        """Return the sums found that only make the input of a branch: x + p in x + f(x + p), with p computed from x.

        So does e + g(z) in z + f(e + g(z)), where e is older than the stream z: an input that is fed to every block.
        Such a sum counts where the stream goes on from it, or where it belongs to a module on the branch. Where e is
        added again and again to what is computed from the sum before, z = f(z) + e, no sum is left: z has no skip. The
        stages of a Runge-Kutta method are inputs of a branch too, but their slopes are added to the stream as well.
        """
        graph = self._graph
        joins = {end for one in self._all() for end in settled_from(graph, one.join)}
        ends = {end for one in self._all() for t in one.branch.tensors for end in settled_from(graph, t)}
        inner = set()
        again: dict[int, int] = {}
        for outer in self._all():
            for node in outer.region.residuals:
                join = self._found[node][0].join
                same = join == outer.join and node not in ends and self._is_apart(node, outer)
                fed = join[0] < outer.join[0] and self._is_fed(join) and not self._leaves(node, outer)
                if node not in joins and (same or fed):
                    inner.add(node)
                    times = 0 if self._is_stage(self._found[node][0], outer) else same + again.get(node, 0)
                    again[outer.node] = max(again.get(outer.node, 0), times)
        return inner | {node for node, times in again.items() if times >= _FED} | self._added_again()

    def _added_again(self) -> set[int]:
        """Sums of the stream with what it was at the beginning, in block after block: no work is added there.

        Blocks inside of blocks begin with one tensor too; all but the outermost few of their sums do add work.
        """
        graph = self._graph
        pure = [one for one in self._all() if one.region.reach & PURE]
        working = set(self._found) - {one.node for one in pure}
        joins = {one.join for one in pure}
        sums = {
            join: sum(_adds(graph, node) and node not in working for node in _behind(graph, join, _MOVING))
            for join in joins
        }
        return {one.node for one in pure if sums[one.join] > _FED}

    def _is_fed(self, tensor: Tensor) -> bool:
        """Tell whether a tensor from before a block's stream goes to other blocks as well."""
        readers = (node for node, _, number in self._graph.consumers[tensor[0]] if number == tensor[1])
        return next(islice(readers, _FED, None), None) is not None

    def _all(self) -> Iterator[Residual]:
        for residuals in self._found.values():
            yield from residuals

    def _is_apart(self, inner: int, outer: Residual) -> bool:
        """Tell whether an inner sum is written beside the outer one, or adds what does not come from its own module."""
        nodes = self._found[inner][0].region.nodes
        return self._owner(inner) is self._owner(outer.node) or not self._within_call(inner, nodes)

    def _leaves(self, inner: int, outer: Residual) -> bool:
        """Tell whether something else than an outer sum's branch reads an inner sum: it is a stream of its own."""
        graph, region, ends = self._graph, outer.region, outer.adders
        stack, seen = [(inner, 0)], {(inner, 0)}
        while stack:
            tensor = stack.pop()
            for node, _ in graph.readers(tensor):
                if graph.live[node] and node not in ends and not region.holds(node, tensor):
                    return True
                if graph.effects[node] in _UNARY and (node, 0) not in seen:
                    seen.add((node, 0))
                    stack.append((node, 0))
        return False

    def _is_stage(self, inner: Residual, outer: Residual) -> bool:
        """Tell whether what an inner sum adds to a stream reaches the outer sum by additions alone as well."""
        graph, ends = self._graph, set(outer.branch.tensors)
        stack = [tensor for end in inner.branch.tensors for tensor in _before(graph, end, _MOVING)]
        seen = set(stack)
        while stack:
            tensor = stack.pop()
            if tensor in ends:
                return True
            for node, _ in graph.readers(tensor):
                added = graph.effects[node] in _MOVING or graph.names[node] in SUMS
                if added and node in outer.region.members and node != inner.node and (node, 0) not in seen:
                    seen.add((node, 0))
                    stack.append((node, 0))
        return False

    def _within_call(self, node: int, others: list[int]) -> bool:
        call = self._owner(node)
        return all(call in ancestry(self._owner(other)) for other in others)


def _adds(graph: Graph, node: int) -> bool:
    """Tell whether an operation may add two tensors of data, or stack them to be summed."""
    return (graph.names[node] in SUMS or graph.names[node] == "Stack") and len(graph.data(node)) > 1


def _before(graph: Graph, tensor: Tensor, effects: Container[Effect] = frozenset(Effect)) -> Iterator[Tensor]:
    """Yield a tensor and what it is computed from, as long as that is one tensor (and by operations of some kinds)."""
    for _ in range(MAX_UNARY):
        yield tensor
        data = graph.data(tensor[0])
        if len(data) != 1 or graph.effects[tensor[0]] not in effects:
            return
        tensor = data[0]


def _behind(graph: Graph, tensor: Tensor, effects: frozenset[Effect]) -> Iterator[int]:
    """Yield the operations that read a tensor, and those that read what operations of some kinds make of it."""
    stack, seen = [tensor], {tensor}
    while stack:
        for node, _ in graph.readers(stack.pop()):
            yield node
            if graph.effects[node] in effects and (node, 0) not in seen:
                seen.add((node, 0))
                stack.append((node, 0))
