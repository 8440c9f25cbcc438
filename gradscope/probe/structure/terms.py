"""The terms of a sum: what each addition of the graph adds up, with the sign and the factor it applies itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from gradscope.probe.structure.graph import Graph, Tensor
from gradscope.probe.structure.lineage import unshaped
from gradscope.probe.structure.operations import Effect
from gradscope.probe.structure.stacks import CONTRACTED, stack_summed
from gradscope.probe.structure.trace import Trace, shown_by


class Product(Enum):
    """How the tensors of a term are put together before they are added."""

    NONE = "one tensor"
    ELEMENTS = "multiplied element by element"
    MATRIX = "multiplied as matrices"


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a sum.

    Attributes:
        tensors: The data tensors (not parameters) it is made of; more than one are multiplied.
        position: Its position among the terms that the addition recorder saw.
        product: How several tensors are multiplied.
        sign: -1 where it is subtracted.
        scale: The constant the addition multiplies it by; None where that is learnt or unknown.
        gate: The tensor the addition itself weighs it with (`lerp`), where that depends on data.
        convex: The weights of the two terms add up to one.
        passed: The operations between the tensors and the sum: what put them next to each other, a change of shape.
    """

    tensors: tuple[Tensor, ...]
    position: int
    product: Product = Product.NONE
    sign: int = 1
    scale: float | None = 1.0
    gate: Tensor | None = None
    convex: bool = False
    passed: tuple[int, ...] = ()


def terms_of(graph: Graph, node: int, *, sums_in_place: frozenset[float]) -> list[Term]:
    """Return the data terms of an addition node; fewer than two where it is none.

    Args:
        graph: The graph.
        node: A node.
        sums_in_place: The sequence numbers of the additions into a view (their node is a `CopySlices`).
    """
    name = graph.names[node]
    build = _BUILDERS.get(name)
    if build is not None:
        return [term for term in build(graph, node) if term.tensors]
    if name == "CopySlices" and graph.sequences[node] in sums_in_place:
        return _plain(graph, node)
    return []


def _data(graph: Graph, node: int) -> dict[int, Tensor]:
    """The inputs that are not computed from parameters alone, by position."""
    return {
        position: (source, number) for source, number, position in graph.inputs[node] if not graph.parametric[source]
    }


def _plain(graph: Graph, node: int) -> list[Term]:
    return [Term((tensor,), position) for position, tensor in sorted(_data(graph, node).items())]


def _alpha(graph: Graph, node: int, name: str = "alpha") -> float:
    value = graph.saved(node, name)
    return float(value) if isinstance(value, int | float) else 1.0


def _add(graph: Graph, node: int) -> list[Term]:
    data = _data(graph, node)
    sign = -1 if graph.names[node] == "Sub" else 1
    alpha = _alpha(graph, node)
    terms = []
    for position, tensor in sorted(data.items()):
        factor = alpha if position == 1 else 1.0
        terms.append(
            Term(
                (tensor,), position, sign=(sign if position == 1 else 1) * (-1 if factor < 0 else 1), scale=abs(factor)
            )
        )
    return terms


def _rsub(graph: Graph, node: int) -> list[Term]:
    data = _data(graph, node)
    if 0 not in data or 1 not in data:
        return []
    alpha = _alpha(graph, node)
    return [Term((data[0],), 0, sign=-1, scale=alpha), Term((data[1],), 1)]


def _addcmul(graph: Graph, node: int) -> list[Term]:
    data = _data(graph, node)
    factors = _factors(graph, data)
    value = _alpha(graph, node, "value")
    terms = [Term((data[0],), 0)] if 0 in data else []
    # With a single data factor the other is a parameter or a constant tensor: a learnt or unknown scale.
    return [*terms, Term(factors, 1, Product.ELEMENTS, sign=-1 if value < 0 else 1, scale=None)]


def _factors(graph: Graph, data: dict[int, Tensor]) -> tuple[Tensor, ...]:
    """What the second and third input multiply; a constant is no factor of its own beside what depends on data."""
    factors = [data[position] for position in (1, 2) if position in data]
    return tuple([tensor for tensor in factors if not graph.is_raw(tensor[0])] or factors)


def _lerp(graph: Graph, node: int) -> list[Term]:
    data = _data(graph, node)
    if 0 not in data or 1 not in data:
        return []
    # Only the overload with a number (LerpBackward0) is asked for it: the other would have to unpack a tensor.
    shown = shown_by(graph.nodes[node])
    tells = isinstance(shown, Trace) or shown.name().endswith("0")
    weight = graph.saved(node, "weight") if tells else None
    weight = float(weight) if isinstance(weight, int | float) else None
    gate = data.get(2)
    gate = None if gate is not None and graph.is_raw(gate[0]) else gate
    return [
        Term((data[0],), 0, scale=None if weight is None else 1 - weight, gate=gate, convex=True),
        Term((data[1],), 1, scale=weight, gate=gate, convex=True),
    ]


def _addmm(graph: Graph, node: int) -> list[Term]:
    data = _data(graph, node)
    factors = _factors(graph, data)
    if 0 not in data or not factors:
        return []
    return [
        Term((data[0],), 0, scale=_alpha(graph, node, "beta")),
        Term(factors, 1, Product.MATRIX, scale=_alpha(graph, node)),
    ]


def _sum(graph: Graph, node: int) -> list[Term]:
    """Sum or mean over a stack of tensors along the stacked axis, or a product with one weight for each of them."""
    summed = stack_summed(graph, node)
    if summed is None:
        return []
    stack, passed, weights = summed
    weighed = graph.names[node] not in _PLAIN_SUMS or any(graph.effects[one] is Effect.SCALE for one in passed)
    scale = None if weighed else 1.0 / len(graph.inputs[stack]) if graph.names[node] == "Mean" else 1.0
    gate = None if weights is None or graph.parametric[weights[0]] or graph.is_raw(weights[0]) else weights
    convex = gate is not None and graph.names[unshaped(graph, gate)[0]] == "Softmax"
    return [
        replace(term, scale=scale, gate=gate, convex=convex, passed=(stack, *passed)) for term in _plain(graph, stack)
    ]


def _joined(graph: Graph, node: int) -> list[Term]:
    """Values put into a tensor where they are added to what is there."""
    adds = graph.saved(node, "accumulate") is True or graph.saved(node, "reduce") == "sum"
    return _plain(graph, node) if adds else []


_PLAIN_SUMS = frozenset({"Mean", "Sum"})
_BUILDERS = {
    "Add": _add, "Sub": _add, "Rsub": _rsub, "Addcmul": _addcmul, "Addcdiv": _addcmul, "Lerp": _lerp, "Addmm": _addmm,
    "Baddbmm": _addmm, "Addbmm": _addmm, "Addmv": _addmm, "Sum": _sum, "Mean": _sum, "IndexAdd": _plain,
    "ScatterAdd": _plain, "ScatterReduce": _joined, "IndexPut": _joined, "IndexPutImpl": _joined,
    **dict.fromkeys(CONTRACTED, _sum),
}  # fmt: skip

PRODUCTS = frozenset(CONTRACTED)
"""Products of matrices: of a stack and one weight for each of its tensors they make a sum."""
SUMS = (frozenset(_BUILDERS) | {"CopySlices"}) - PRODUCTS
"""The operations that may be an addition of a branch to a stream."""
