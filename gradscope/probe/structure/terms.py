"""The terms of a sum: what each addition of the graph adds up, with the sign and the factor it applies itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from gradscope.probe.structure.graph import Graph, Tensor
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
    """

    tensors: tuple[Tensor, ...]
    position: int
    product: Product = Product.NONE
    sign: int = 1
    scale: float | None = 1.0
    gate: Tensor | None = None
    convex: bool = False


MAX_STACKED = 8
"""More tensors than this in a stack that is summed are a reduction, not an addition of branches."""


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
    """Sum or mean over a stack of tensors along the stacked axis, of a weighed stack as well."""
    stack, weighed = _stack_of(graph, node)
    if stack < 0 or not 1 < len(graph.inputs[stack]) <= MAX_STACKED or not _stacks(graph, stack):
        return []
    dims, stacked = graph.saved(node, "dim"), graph.saved(stack, "dim")
    shape = graph.shape((stack, 0))
    if not isinstance(dims, tuple | list) or len(dims) != 1 or shape is None:
        return []
    # Autograd saves dimensions as unsigned numbers: -1 is 2^64 - 1.
    if _wrapped(dims[0], len(shape)) != _wrapped(stacked, len(shape)):
        return []
    scale = None if weighed else 1.0 / len(graph.inputs[stack]) if graph.names[node] == "Mean" else 1.0
    return [replace(term, scale=scale) for term in _plain(graph, stack)]


def _stack_of(graph: Graph, node: int) -> tuple[int, bool]:
    """Return the stack that a node sums, -1 where it sums none, and whether a product lies in between."""
    sources = graph.data(node)
    weighed = len(sources) == 1 and graph.names[sources[0][0]] == "Mul"
    if weighed:
        sources = graph.data(sources[0][0])
    found = len(sources) == 1 and graph.names[sources[0][0]] in {"Stack", "Cat"}
    return (sources[0][0] if found else -1), weighed


def _stacks(graph: Graph, node: int) -> bool:
    """Tell whether tensors are put next to each other along an axis of their own."""
    if graph.names[node] == "Stack":
        return True
    shapes = [graph.shape((source, number)) for source, number, _ in graph.inputs[node]]
    dim = graph.saved(node, "dim")
    return isinstance(dim, int) and all(shape and shape[_wrapped(dim, len(shape))] == 1 for shape in shapes)


def _joined(graph: Graph, node: int) -> list[Term]:
    """Values put into a tensor where they are added to what is there."""
    adds = graph.saved(node, "accumulate") is True or graph.saved(node, "reduce") == "sum"
    return _plain(graph, node) if adds else []


def adder_of(graph: Graph, node: int) -> int:
    """Return the node whose inputs are the terms of a sum: the sum itself, or the stack that is summed."""
    return _stack_of(graph, node)[0] if graph.names[node] in _OF_STACKS else node


_OF_STACKS = frozenset({"Sum", "Mean"})
"""Sums along the axis on which the terms were stacked."""


def _wrapped(dim: int, rank: int) -> int:
    return (dim - (1 << 64) if dim >= 1 << 63 else dim) % rank


_BUILDERS = {
    "Add": _add, "Sub": _add, "Rsub": _rsub, "Addcmul": _addcmul, "Addcdiv": _addcmul, "Lerp": _lerp, "Addmm": _addmm,
    "Baddbmm": _addmm, "Addbmm": _addmm, "Addmv": _addmm, "Sum": _sum, "Mean": _sum, "IndexAdd": _plain,
    "ScatterAdd": _plain, "ScatterReduce": _joined, "IndexPut": _joined, "IndexPutImpl": _joined,
}  # fmt: skip

SUMS = frozenset(_BUILDERS) | {"CopySlices"}
"""The operations that may be an addition of a branch to a stream."""
