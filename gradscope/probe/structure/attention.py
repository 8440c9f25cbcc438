"""Attention found in the graph: whose product with whom is softmaxed, and what the result weighs.

Two maps of the stream are multiplied, their product goes through a softmax, and the softmax is multiplied with a third:
query, key and value, whatever their modules are called. Fused attentions take the three as inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from gradscope.probe.structure.graph import Graph, Tensor
from gradscope.probe.structure.operations import Effect

_SOFTMAX = frozenset({"Softmax", "SoftmaxHalfToFloat", "MaskedSoftmax", "SafeSoftmax"})
_ALONG = frozenset({Effect.HAND_ON, Effect.SCALE, Effect.PART, Effect.JOIN, Effect.ADD, Effect.NORM, Effect.BEND})
"""What may lie between a projection and the product: heads are split, rotated, normalised, scaled."""
_FORWARD = frozenset({Effect.HAND_ON, Effect.SCALE})
"""What may lie between the softmax and its product with the values: dropout, casts, head masks."""
_MOST_NODES = 200
"""Nodes looked at between a product and its projections; a rotary embedding has about twenty."""

_MOST_WEIGHTS = 3
"""Weights of one projection: its own, and the two of a low-rank addition."""

ROLES = ("query", "key", "value")


@dataclass(frozen=True)
class Attention:
    """One attention of the graph: the tensors that are query, key and value, and the weights they come from.

    Attributes:
        tensors: By role.
        weights: By role, the first weights met on the way back; empty where there are none (a constant, a cache).
    """

    tensors: dict[str, Tensor]
    weights: dict[str, tuple[Any, ...]]


def find_attentions(graph: Graph) -> list[Attention]:
    """Find every attention, in execution order."""
    found = []
    for node in range(len(graph.nodes)):
        parts = _parts(graph, node)
        if parts is not None:
            found.append(Attention(parts, {role: _projections(graph, tensor) for role, tensor in parts.items()}))
    return found


def roles_of(graph: Graph, model: nn.Module) -> dict[str, str]:
    """Return the role of every weight that feeds an attention: query, key, value, or query_key_value for several."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    serves: dict[str, set[str]] = {}
    for attention in find_attentions(graph):
        for role, weights in attention.weights.items():
            for weight in weights:
                if id(weight) in names:
                    serves.setdefault(names[id(weight)], set()).add(role)
    return {name: next(iter(roles)) if len(roles) == 1 else "query_key_value" for name, roles in serves.items()}


def _parts(graph: Graph, node: int) -> dict[str, Tensor] | None:
    if graph.effects[node] is Effect.ATTEND:
        inputs = {position: (source, number) for source, number, position in graph.inputs[node]}
        return {role: inputs[i] for i, role in enumerate(ROLES)} if all(i in inputs for i in range(3)) else None
    if graph.names[node] not in _SOFTMAX or not graph.inputs[node]:
        return None
    source, number, _ = graph.inputs[node][0]
    scores = _search(graph, (source, number), lambda other: _is_product(graph, other))
    values = _weighed(graph, node)
    if scores is None or values is None:
        return None
    query, key = _operands(graph, scores)[:2]
    return {"query": query, "key": key, "value": values}


def _is_product(graph: Graph, node: int) -> bool:
    """Whether a node multiplies two matrices that both depend on the input."""
    return graph.effects[node] is Effect.PROJECT and len(_operands(graph, node)) > 1


def _operands(graph: Graph, node: int) -> list[Tensor]:
    ordered = sorted(graph.inputs[node], key=lambda edge: edge[2])
    return [(source, number) for source, number, _ in ordered if not graph.parametric[source]]


def _weighed(graph: Graph, softmax: int) -> Tensor | None:
    """Return the tensor that the softmax is multiplied with, looking along what hands it on."""
    stack, seen = [softmax], {softmax}
    while stack:
        node = stack.pop()
        for reader, position in graph.readers((node, 0)):
            if _is_product(graph, reader):
                others = [(s, n) for s, n, p in graph.inputs[reader] if p != position and not graph.parametric[s]]
                return others[0] if others else None
            if graph.effects[reader] in _FORWARD and reader not in seen:
                seen.add(reader)
                stack.append(reader)
    return None


def _search(graph: Graph, tensor: Tensor, wanted: Callable[[int], bool]) -> int | None:
    """Return the nearest node behind a tensor that is wanted, along elementwise operations only."""
    return next((node for node in _behind(graph, tensor) if wanted(node)), None)


def _projections(graph: Graph, tensor: Tensor) -> tuple[Any, ...]:
    """Return the weights of the first projections behind a tensor; none where it is the stream itself."""
    found = {}
    for node in _behind(graph, tensor):
        if graph.effects[node] is Effect.PROJECT:
            for source, _, _ in graph.inputs[node]:
                if graph.parametric[source]:
                    found.update({id(weight): weight for weight in _leaves(graph, source)})
    return tuple(found.values()) if len(found) <= _MOST_WEIGHTS else ()


def _behind(graph: Graph, tensor: Tensor) -> Iterator[int]:
    """Yield nodes behind a tensor, the nearest first; projections are yielded and not passed."""
    queue, seen = [tensor[0]], {tensor[0]}
    for node in queue:
        if len(seen) > _MOST_NODES:
            return
        yield node
        if graph.effects[node] in _ALONG:
            for source, _, _ in graph.inputs[node]:
                if source not in seen and not graph.parametric[source]:
                    seen.add(source)
                    queue.append(source)


def _leaves(graph: Graph, node: int) -> Iterator[Any]:
    """Yield the weights (two dimensions or more) that a tensor made of parameters alone is made of."""
    stack, seen = [node], {node}
    while stack:
        current = stack.pop()
        variable = getattr(graph.nodes[current], "variable", None)
        if variable is not None and variable.dim() > 1:
            yield variable
        for source, _, _ in graph.inputs[current]:
            if source not in seen:
                seen.add(source)
                stack.append(source)
