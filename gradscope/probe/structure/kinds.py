"""What kind of residual addition a site is, and by which constants its terms are scaled."""

from __future__ import annotations

from dataclasses import dataclass

from gradscope.probe.structure.chain import FactorOf, constant_of
from gradscope.probe.structure.graph import Graph, Tensor
from gradscope.probe.structure.lineage import depends_on
from gradscope.probe.structure.normalised import is_normalising
from gradscope.probe.structure.operations import Effect
from gradscope.probe.structure.residual import Residual
from gradscope.probe.structure.terms import Product


@dataclass(frozen=True, slots=True)
class Scaling:
    """How a term is scaled before it is added.

    Attributes:
        scale: The product of the constants; None where a factor is learnt, depends on the input or is unknown.
        gated: A factor depends on the input.
        scaled: There is a factor other than 1.
    """

    scale: float | None
    gated: bool

    @property
    def scaled(self) -> bool:
        """There is a factor other than 1."""
        return self.scale != 1.0


def skip_scaling(residual: Residual) -> Scaling:
    """Return how the skip is scaled."""
    return Scaling(residual.link.scale, bool(residual.link.gates))


def branch_scaling(graph: Graph, residual: Residual, factor_of: FactorOf) -> Scaling:
    """Go back from the branch's end as long as it is only scaled, and multiply the factors."""
    term = residual.branch
    if term.product is Product.ELEMENTS and len(term.tensors) > 1:
        return Scaling(None, _gate_of(graph, list(term.tensors)) is not None)
    scale = term.scale
    gated = term.gate is not None
    tensor = term.tensors[0]
    made_up_for: set[int] = set()
    while tensor != residual.join:
        node = tensor[0]
        data = _data(graph, node)
        effect = graph.effects[node]
        if effect is Effect.SCALE and len(data) == 1 and graph.names[node] != "Rsub":
            if not _affine_of_norm(graph, node, data[0]):
                factor = 1.0 if node in made_up_for else constant_of(graph, node, factor_of)
                scale = None if scale is None or factor is None else scale * abs(factor)
                made_up_for |= _made_up_for(graph, node, data[0], factor_of)
        elif graph.names[node] == "Mul" and len(data) > 1:
            value = _gate_of(graph, data)
            if value is None:
                break
            gated, scale = True, None
            data = [value]
        elif len(data) != 1 or effect not in _HANDING_ON:
            break
        tensor = data[0]
    return Scaling(None if gated else scale, gated)


def _made_up_for(graph: Graph, node: int, source: Tensor, factor_of: FactorOf) -> set[int]:
    """Return the division by the share of samples that are kept, in front of the product that drops the others."""
    factor = factor_of(node)
    return {source[0]} if factor is not None and factor.keeps and graph.names[source[0]] == "Div" else set()


def ungated(graph: Graph, residual: Residual) -> tuple[Tensor, ...]:
    """Return what a branch is before it is scaled and gated: what its last product is made of, without the gate."""
    tensors = list(residual.branch.tensors)
    while len(tensors) == 1 and tensors[0] != residual.join:
        node = tensors[0][0]
        if graph.effects[node] not in {Effect.HAND_ON, Effect.SCALE}:
            break
        tensors = _data(graph, node)
    value = _gate_of(graph, tensors) if len(tensors) > 1 else None
    return tuple(tensors) if value is None else (value,)


_HANDING_ON = frozenset({Effect.HAND_ON})


def kind_of(graph: Graph, residual: Residual, factor_of: FactorOf) -> str:
    """Return identity, scaled, gated or projection."""
    if residual.link.projection:
        return "projection"
    skip, branch = skip_scaling(residual), branch_scaling(graph, residual, factor_of)
    if skip.gated or branch.gated:
        return "gated"
    return "scaled" if skip.scaled or branch.scaled else "identity"


def _data(graph: Graph, node: int) -> list[Tensor]:
    return [(source, number) for source, number, _ in graph.inputs[node] if not graph.parametric[source]]


def _gate_of(graph: Graph, factors: list[Tensor]) -> Tensor | None:
    """Return the factor that the other one gates; None where one is computed from the other: that is no gating."""
    first, second = factors[:2]
    if first == second or depends_on(graph, first, second) or depends_on(graph, second, first):
        return None
    if _is_gate(graph, first):
        return second
    return first if _is_gate(graph, second) else None


_SQUASHING = frozenset({"Sigmoid", "Tanh", "Softmax", "Hardsigmoid", "Clamp", "Rsub"})


def _is_gate(graph: Graph, tensor: Tensor) -> bool:
    """Tell whether a factor is squashed, or the same for many elements (a shift-and-scale conditioning)."""
    for _ in range(4):
        node = tensor[0]
        if graph.names[node] in _SQUASHING:
            return True
        if graph.names[node] in {"Expand", "Unsqueeze"}:
            return True
        data = _data(graph, node)
        if len(data) != 1 or graph.effects[node] not in {Effect.HAND_ON, Effect.PART, Effect.SCALE, Effect.ADD}:
            return False
        tensor = data[0]
    return False


def _affine_of_norm(graph: Graph, node: int, source: Tensor) -> bool:
    """Tell whether a learnt factor is the weight of a normalisation written by hand."""
    if not any(graph.parametric[item] for item, _, _ in graph.inputs[node]):
        return False
    while graph.effects[source[0]] is Effect.HAND_ON and graph.inputs[source[0]]:
        source = graph.inputs[source[0]][0][:2]
    return is_normalising(graph, source[0])

