"""The graph behind the losses of one step, walked once: operations in the order in which they ran.

Nodes are autograd nodes, and `Trace` nodes for what ran without gradients but matters (see `additions`). The graph
keeps no tensor; it keeps autograd nodes, so it is dropped before the step's memory is to be freed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from torch.autograd.function import BackwardCFunction
from torch.nn import Parameter

from gradscope.probe.structure.operations import Effect, effect_of, operation
from gradscope.probe.watching.calls import Call

Tensor = tuple[int, int]
"""A tensor of the graph: (node, number of the node's output)."""

_LEAF_SEQUENCE = 1 << 62
"""Leaf accumulators carry the largest sequence number; they come first."""

OUTSIDE = -1.0
"""The sequence number of what was there before the forward: parameters and inputs."""


class Trace:
    """An operation that ran without a gradient, or a tensor that needs none.

    Attributes:
        name: The operation as `operations` knows it; "" for a tensor that came from outside.
        inputs: What went in: Trace objects or (autograd node, output number) pairs.
        sequence: Where it ran: just before the autograd node that had this sequence number next.
        shape: The shape of what came out.
        call: The module call it ran in.
        raw: No gradient reaches it: neither it nor anything it was computed from needs one.
        stripped: Its raw stand-in, once that was made.
    """

    __slots__ = ("call", "inputs", "name", "raw", "sequence", "shape", "stripped")

    def __init__(
        self, name: str, inputs: tuple[Any, ...], sequence: float, shape: tuple[int, ...], call: Call | None = None
    ) -> None:
        self.call = call
        self.raw: bool = all(isinstance(item, Trace) and item.raw for item in inputs)
        self.stripped: Trace | None = None
        self.name = name
        self.inputs = inputs
        self.sequence = sequence
        self.shape = shape

    def without_gradient(self) -> Trace:
        """Return this tensor as one that no gradient reaches."""
        if self.raw:
            return self
        if self.stripped is None:
            self.stripped = Trace("", (), OUTSIDE, self.shape, self.call)
        return self.stripped


class Graph:
    """Operations in execution order, with what each takes in.

    Attributes:
        nodes: Autograd nodes or `Trace` objects.
        names: The operation of each node.
        inputs: For each node the tensors it takes, with their position among the node's inputs.
        sequences: The autograd sequence number of each node (fractional for traces).
        ends: The losses.
        carriers: By trace the output of an opaque autograd node (checkpointing) that carries what it computed.
        tokens: Learned tokens that a block adds to although the data do not go into them; known with `parametric`.
    """

    def __init__(self, in_views: Mapping[int, str]) -> None:
        self.nodes: list[Any] = []
        self.names: list[str] = []
        self.inputs: list[list[tuple[int, int, int]]] = []
        self.sequences: list[float] = []
        self.index: dict[Any, int] = {}
        self.ends: list[int] = []
        self.carriers: dict[Trace, tuple[Any, int]] = {}
        self.tokens: list[int] = []
        self._in_views = in_views
        self._consumers: list[list[tuple[int, int, int]]] | None = None

    # What follows is worked out when asked for: a step whose graph is that of an earlier one never asks.

    @cached_property
    def effects(self) -> list[Effect]:
        """What each does to a stream."""
        return [_effect(node, name, self._in_views) for node, name in zip(self.nodes, self.names, strict=True)]

    @cached_property
    def parametric(self) -> list[bool]:
        """Whether a node's output is computed from parameters alone."""
        known: list[bool] = []
        for number in range(len(self.nodes)):
            known.append(_is_parametric(self, number, known))
        self.tokens = _free_tokens(self, known)
        return known

    @cached_property
    def live(self) -> list[bool]:
        """For each node whether a loss (one of `ends`) is computed from it."""
        live = [False] * len(self.nodes)
        for end in self.ends:
            live[end] = True
        for node in range(len(self.nodes) - 1, -1, -1):
            if live[node]:
                for source, _, _ in self.inputs[node]:
                    live[source] = True
        return live

    @property
    def consumers(self) -> list[list[tuple[int, int, int]]]:
        """For each node who reads it: (consumer, position among its inputs, output number read)."""
        if self._consumers is None:
            self._consumers = [[] for _ in self.nodes]
            for i, inputs in enumerate(self.inputs):
                for source, number, position in inputs:
                    self._consumers[source].append((i, position, number))
        return self._consumers

    def readers(self, tensor: Tensor) -> list[tuple[int, int]]:
        """Return who reads one tensor: (node, position among its inputs)."""
        return [(node, position) for node, position, number in self.consumers[tensor[0]] if number == tensor[1]]

    def shape(self, tensor: Tensor) -> tuple[int, ...] | None:
        """Return a tensor's shape, None where autograd does not say (nested tensors)."""
        return shape_of(self.nodes[tensor[0]], tensor[1])

    def gradient_of(self, tensor: Tensor) -> tuple[Any, int] | None:
        """Return the autograd node, with its output, to which a tensor's gradient comes; None where none does."""
        node = self.nodes[tensor[0]]
        return self.carriers.get(node) if isinstance(node, Trace) else (node, tensor[1])

    def is_raw(self, node: int) -> bool:
        """Tell whether a node stands for a tensor that no gradient reaches."""
        trace = self.nodes[node]
        return isinstance(trace, Trace) and trace.raw

    def data(self, node: int) -> list[Tensor]:
        """Return what a node takes in apart from parameters and what is computed from them alone."""
        return [(source, number) for source, number, _ in self.inputs[node] if not self.parametric[source]]

    def saved(self, node: int, name: str) -> Any:
        """Return a number (never a tensor) that an autograd node saved, None where it saved no such thing."""
        return getattr(self.nodes[node], f"_saved_{name}", None)


def shape_of(node: Any, output_number: int) -> tuple[int, ...] | None:
    """Return the shape of an output of an autograd node or a trace, None where autograd does not say."""
    if isinstance(node, Trace):
        return node.shape
    try:
        return tuple(int(size) for size in node._input_metadata[output_number].shape)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return None


def walk(
    roots: Iterable[Any],
    hidden: Mapping[int, Sequence[tuple[int, Trace]]] | None = None,
    splices: Mapping[tuple[int, int], Trace] | None = None,
    in_views: Mapping[int, str] | None = None,
) -> Graph:
    """Walk the graph behind some autograd nodes once, without recursion.

    Args:
        roots: The losses' autograd nodes.
        hidden: By sequence number, the inputs that autograd does not know because they need no gradient.
        in_views: By sequence number, what was done in place to a view (autograd shows that it was done only).
        splices: By sequence number and output, the trace that computed an opaque node's output (checkpointing).
    """
    found: dict[Any, list[tuple[Any, int, int]]] = {}
    stack = [root for root in roots if root is not None]
    hidden = hidden or {}
    splices = splices or {}
    carriers: dict[Trace, tuple[Any, int]] = {}
    while stack:
        node = stack.pop()
        if node in found:
            continue
        edges = found[node] = _edges(node, hidden, splices, carriers)
        stack.extend(source for source, _, _ in edges if source not in found)
    graph = _ordered(found, in_views or {})
    graph.carriers = carriers
    return graph


def _edges(
    node: Any,
    hidden: Mapping[int, Sequence[tuple[int, Trace]]],
    splices: Mapping[tuple[int, int], Trace],
    carriers: dict[Trace, tuple[Any, int]],
) -> list[tuple[Any, int, int]]:
    if isinstance(node, Trace):
        pairs = [(item, 0) if isinstance(item, Trace) else item for item in node.inputs]
        edges = [(source, number, i) for i, (source, number) in enumerate(pairs)]
    else:
        edges = [(source, number, i) for i, (source, number) in enumerate(node.next_functions) if source is not None]
        if hidden:
            edges += [(trace, 0, position) for position, trace in hidden.get(node._sequence_nr(), ())]
    return [_spliced(edge, splices, carriers) for edge in edges] if splices else edges


def _spliced(
    edge: tuple[Any, int, int], splices: Mapping[tuple[int, int], Trace], carriers: dict[Trace, tuple[Any, int]]
) -> tuple[Any, int, int]:
    source, number, position = edge
    if isinstance(source, Trace):
        return edge
    trace = splices.get((source._sequence_nr(), number))
    if trace is None:
        return edge
    carriers[trace] = (source, number)
    return trace, 0, position


def _ordered(found: dict[Any, list[tuple[Any, int, int]]], in_views: Mapping[int, str]) -> Graph:
    sequences = [_sequence(node) for node in found]
    nodes = list(found)
    nodes = [nodes[i] for i in sorted(range(len(nodes)), key=sequences.__getitem__)]
    order = {node: i for i, node in enumerate(nodes)}
    inputs = [[(order[source], number, position) for source, number, position in found[node]] for node in nodes]
    if any(source >= node for node, edges in enumerate(inputs) for source, _, _ in edges):
        order = _topological(found)  # several threads number their nodes independently
        nodes = sorted(found, key=order.__getitem__)
        inputs = [[(order[source], number, position) for source, number, position in found[node]] for node in nodes]
        sequences = [_sequence(node) for node in nodes]
    else:
        sequences.sort()
    graph = Graph(in_views)
    graph.index, graph.nodes, graph.inputs, graph.sequences = order, nodes, inputs, sequences
    graph.names = [node.name if isinstance(node, Trace) else operation(node.name()) for node in nodes]
    return graph


def _effect(node: Any, name: str, in_views: Mapping[int, str]) -> Effect:
    if not name and isinstance(node, Trace):
        return Effect.LEAF
    if isinstance(node, BackwardCFunction):
        return Effect.OPAQUE
    if name == "CopySlices":
        inner = effect_of(in_views.get(node._sequence_nr(), name))
        return inner if inner in _IN_PLACE else Effect.JOIN
    return effect_of(name)


_IN_PLACE = frozenset({Effect.BEND, Effect.SCALE, Effect.HAND_ON})


def _is_parametric(graph: Graph, number: int, known: list[bool]) -> bool:
    node, inputs = graph.nodes[number], graph.inputs[number]
    if isinstance(node, Trace):
        return False
    if not inputs:
        return isinstance(getattr(node, "variable", None), Parameter)
    if not all(known[source] for source, _, _ in inputs):
        return False
    effect = graph.effects[number]
    if effect is Effect.ATTEND or effect is Effect.RECUR or (effect is Effect.PROJECT and lacks_data(node)):
        return False
    return not _repeats_tokens(graph, number)


def _repeats_tokens(graph: Graph, number: int) -> bool:
    """Learned queries become data where they are repeated for every sample; a weight never is."""
    if graph.names[number] not in _REPEATING:
        return False
    before, after = graph.shape(graph.inputs[number][0][:2]), shape_of(graph.nodes[number], 0)
    if before is None or after is None:
        return False
    return math.prod(after) > math.prod(before) and sum(size > 1 for size in before) > 1


def _free_tokens(graph: Graph, parametric: list[bool]) -> list[int]:
    """Learned tokens that stand among the data and are added to are a stream, as a class token that attends to it."""
    tokens = []
    for node, name in enumerate(graph.names):
        if name in _REPEATING and parametric[node]:
            readers = [reader for reader, _, _ in graph.consumers[node] if not parametric[reader]]
            shape = graph.shape((node, 0))
            joined = any(graph.effects[reader] is Effect.JOIN for reader in readers)
            if joined and any(graph.names[reader] == "Add" and graph.shape((reader, 0)) == shape for reader in readers):
                parametric[node] = False
                tokens.append(node)
    return tokens


_REPEATING = frozenset({"Expand", "Repeat"})


def lacks_data(node: Any) -> bool:
    """Tell whether a weighted operation read data that needs no gradient (its first inputs, bias apart)."""
    name = operation(node.name())
    edges = node.next_functions
    if name in {"Embedding", "EmbeddingBag"}:
        return True
    if name == "Mv":
        return False  # a matrix and a buffer, as in the norm of a weight
    data = edges[1:3] if name in {"Addmm", "Baddbmm", "Addbmm", "Addmv"} else edges[:2]
    return any(source is None for source, _ in data)


def _sequence(node: Any) -> float:
    if isinstance(node, Trace):
        return node.sequence
    number: int = node._sequence_nr()
    return number if number < _LEAF_SEQUENCE else OUTSIDE


def _topological(found: dict[Any, list[tuple[Any, int, int]]]) -> dict[Any, int]:
    waiting = {node: len(edges) for node, edges in found.items()}
    readers: dict[Any, list[Any]] = {node: [] for node in found}
    for node, edges in found.items():
        for source, _, _ in edges:
            readers[source].append(node)
    ready = [node for node, count in waiting.items() if not count]
    order: dict[Any, int] = {}
    while ready:
        node = ready.pop()
        order[node] = len(order)
        for reader in readers[node]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    return order
