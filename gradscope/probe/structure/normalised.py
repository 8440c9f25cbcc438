"""Where a tensor is normalised: by a layer that autograd knows as such, or written out by hand."""

from __future__ import annotations

from gradscope.probe.structure.graph import Graph, Tensor
from gradscope.probe.structure.operations import Effect
from gradscope.probe.structure.trace import Trace, shown_by

_STATISTICS = frozenset({"Rsqrt", "Sqrt", "Std", "StdMean", "Norm", "LinalgVectorNorm", "Var", "VarMean"})
_MAX_STEPS = 12
"""A normalisation written by hand is never more operations from the tensor to its divisor."""


_WORK = frozenset({Effect.PROJECT, Effect.ATTEND, Effect.RECUR})


def normaliser(graph: Graph, tensor: Tensor, inside: frozenset[int] | None = None) -> int | None:
    """Return the node that normalises a tensor, where everything that reads the tensor serves to do so.

    Args:
        graph: The graph.
        tensor: The tensor.
        inside: The readers that count; None means all.
    """
    aliases = {tensor}
    stack = [tensor]
    scaled: list[int] = []
    others: list[int] = []
    while stack:
        for node, _ in graph.readers(stack.pop()):
            if inside is not None and node not in inside:
                continue
            effect = graph.effects[node]
            if effect is Effect.NORM:
                scaled.append(node)
            elif _hands_on(graph, node, part=inside is not None):
                parts = {(node, number) for _, _, number in graph.consumers[node]} - aliases
                aliases |= parts
                stack.extend(parts)
            elif is_normalising(graph, node, aliases) or _squashes(graph, node):
                scaled.append(node)
            elif _centres(graph, node, aliases):
                aliases.add((node, 0))
                stack.append((node, 0))
            elif effect in _WORK:
                return None  # a layer reads it as it is
            else:
                others.append(node)
    # Besides the divisions only their statistics may read the tensor: powers, means, differences from the mean.
    serve = all(any(graph.leads_to(node, one, _MAX_STEPS * 4) for one in scaled if node < one) for node in others)
    return max(scaled) if scaled and serve else None


_KEEPS_SIZE = frozenset({Effect.HAND_ON, Effect.PART, Effect.SCALE, Effect.POOL, Effect.REDUCE})
_KINKED = frozenset({"Abs", "LeakyRelu", "Neg", "Prelu", "Relu", "Rrelu"})
"""Operations that turn c x into c times what they make of x: a choice of tokens, a mean over them, a ReLU."""


def forgets_size(graph: Graph, tensor: Tensor) -> bool:
    """Tell whether all that comes of a tensor is divided by its own size, so that a factor on it changes nothing.

    Statistics that were gathered before (a batch norm in evaluation) divide by something else, and tanh by nothing.
    """
    for _ in range(_MAX_STEPS):
        found = normaliser(graph, tensor)
        if found is not None:
            divides = graph.effects[found] is Effect.NORM or is_normalising(graph, found)
            return divides and graph.saved(found, "training") is not False
        readers = {node for node, _ in graph.readers(tensor) if graph.live[node]}
        reader = min(readers, default=0)
        if len(readers) != 1 or len(graph.data(reader)) != 1:
            return False
        if graph.effects[reader] not in _KEEPS_SIZE and graph.names[reader] not in _KINKED:
            return False
        tensor = (reader, 0)
    return False


_GUARD = 1e4
"""A clamp that lets pass numbers of this size only keeps half precision (up to 65504) from overflowing."""


def _hands_on(graph: Graph, node: int, *, part: bool) -> bool:
    """Tell whether a node hands on a tensor; of the tokens a block works on also parts, or the tensor beside others."""
    effect = graph.effects[node]
    if effect is Effect.JOIN:
        return part
    if graph.names[node] == "Clamp":
        return _only_guards(graph, node)
    return len(graph.inputs[node]) == 1 and (effect is Effect.HAND_ON or (part and effect is Effect.PART))


def _only_guards(graph: Graph, node: int) -> bool:
    """Tell whether a clamp's bounds are numbers so far out that they touch nothing."""
    shown = shown_by(graph.nodes[node])
    if not isinstance(shown, Trace) and shown.name().endswith("0"):
        return False  # the bounds are tensors
    bounds = (graph.saved(node, "min"), graph.saved(node, "max"))
    return any(bounds) and all(bound is None or abs(bound) > _GUARD for bound in bounds)


def _centres(graph: Graph, node: int, aliases: set[Tensor]) -> bool:
    """Tell whether a node subtracts its mean from a tensor."""
    inputs = [(source, number) for source, number, _ in graph.inputs[node]]
    if graph.names[node] != "Sub" or len(inputs) != 2 or inputs[0] not in aliases:  # noqa: PLR2004 - tensor and mean
        return False
    mean = inputs[1][0]
    return graph.names[mean] == "Mean" and any((source, n) in aliases for source, n, _ in graph.inputs[mean])


def _squashes(graph: Graph, node: int) -> bool:
    """Tell whether a node begins a norm without statistics: a learnt factor, tanh, a learnt factor (Zhu 2025, DyT)."""
    for name in ("Mul", "Tanh", "Mul"):
        learnt = any(graph.parametric[source] for source, _, _ in graph.inputs[node])
        if graph.names[node] != name or (name == "Mul") != learnt:
            return False
        readers = graph.readers((node, 0))
        if name == "Tanh" and len(readers) != 1:
            return False
        node = readers[0][0] if readers else node
    return True


def is_normalising(graph: Graph, node: int, aliases: set[Tensor] | None = None) -> bool:
    """Tell whether a node divides a tensor (one of `aliases`) by a statistic of itself."""
    if graph.names[node] not in {"Mul", "Div"}:
        return False
    data = [(source, number) for source, number, _ in graph.inputs[node] if not graph.parametric[source]]
    if len(data) != 2 or data[0] == data[1]:  # noqa: PLR2004 - what is divided, and the statistic
        return False
    if aliases is not None and not aliases & set(data):
        return _after_centering(graph, data, aliases)
    if graph.is_raw(node) and not _is_own(graph, *data):
        return False
    return any(_is_statistic(graph, tensor) for tensor in data)


def _is_own(graph: Graph, one: Tensor, other: Tensor) -> bool:
    """Tell whether two inputs of a product are made of one input of the model: 1 / sqrt(1 + sigma^2) is none of x."""
    return not _inputs_behind(graph, one).isdisjoint(_inputs_behind(graph, other))


def _inputs_behind(graph: Graph, tensor: Tensor) -> set[int]:
    stack, seen, found = [tensor[0]], {tensor[0]}, set[int]()
    while stack:
        node = stack.pop()
        sources = {source for source, _ in graph.data(node)}
        found.update(() if sources else (node,))
        stack += sources - seen
        seen |= sources
    return found


def _after_centering(graph: Graph, data: list[Tensor], aliases: set[Tensor]) -> bool:
    """The form (x - mean) / sqrt(variance + eps)."""
    for source, _ in data:
        if graph.names[source] == "Sub" and aliases & {(s, n) for s, n, _ in graph.inputs[source]}:
            return any(_is_statistic(graph, tensor) for tensor in data)
    return False


def _is_statistic(graph: Graph, tensor: Tensor) -> bool:
    for _ in range(_MAX_STEPS):
        node = tensor[0]
        if graph.names[node] in _STATISTICS:
            return True
        data = [(source, number) for source, number, _ in graph.inputs[node] if not graph.parametric[source]]
        if len(data) != 1 or graph.effects[node] in {Effect.PROJECT, Effect.OPAQUE, Effect.NORM}:
            return False
        tensor = data[0]
    return False


_LEAVES_NORMALISED = frozenset({Effect.HAND_ON, Effect.PART, Effect.SCALE, Effect.ADD})


def ends_normalised(graph: Graph, tensor: Tensor) -> bool:
    """Tell whether a tensor comes out of a normalisation, up to scales, reshapes and what was left out."""
    for _ in range(_MAX_STEPS):
        node = tensor[0]
        if graph.effects[node] is Effect.NORM or is_normalising(graph, node):
            return True
        data = [(source, number) for source, number, _ in graph.inputs[node] if not graph.parametric[source]]
        if len(data) != 1 or graph.effects[node] not in _LEAVES_NORMALISED:
            return False
        tensor = data[0]
    return False
