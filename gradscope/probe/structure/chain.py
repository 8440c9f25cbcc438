"""What may lie on a skip: one step back along a stream, through one operation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gradscope.probe.structure.factor import Factor
from gradscope.probe.structure.graph import Graph, Tensor
from gradscope.probe.structure.lineage import mixed_streams
from gradscope.probe.structure.normalised import is_normalising
from gradscope.probe.structure.operations import Effect
from gradscope.probe.structure.parts import Part, part_of
from gradscope.probe.structure.terms import Product, Term
from gradscope.probe.structure.trace import Trace, shown_by

if TYPE_CHECKING:
    from gradscope.probe.structure.residual import Residual

FactorOf = Callable[[int], Factor | None]
"""Returns what a product node multiplied by, None where the forward did not see it (the mask of a dropout)."""

_MAX_JOINED = 8
"""A skip is followed into at most this many tensors that were put next to each other."""


@dataclass(frozen=True, slots=True)
class Link:
    """A tensor on the way back along a skip, and what lies between it and the sum.

    Attributes:
        tensor: The tensor.
        previous: The link one operation nearer to the sum; None at the sum itself.
        scale: The product of the constant factors; None where one is learnt or unknown.
        gates: The data-dependent factors.
        projection: It passed a layer: weights, a norm, pooling, resampling.
        resampled: It passed an upsampling.
        bent: It passed an activation, which the one layer of a pre-activation shortcut has before it.
        parts: The parts it was cut down to.
        sums: The residual additions it passed.
        sign: -1 where it was negated.
        length: Number of operations between the sum and this tensor.
    """

    tensor: Tensor
    previous: Link | None = None
    scale: float | None = 1.0
    gates: tuple[Tensor, ...] = ()
    projection: bool = False
    resampled: bool = False
    bent: bool = False
    parts: tuple[Part | None, ...] = ()
    sums: tuple[int, ...] = ()
    sign: int = 1
    length: int = 0

    @property
    def previous_number(self) -> int:
        """The output number of the tensor one operation nearer to the sum; -1 at the sum itself."""
        return -1 if self.previous is None else self.previous.tensor[1]

    @property
    def nodes(self) -> list[int]:
        """The operations between this tensor and the sum, the one that reads this tensor first."""
        found = []
        link = self.previous
        while link is not None:
            found.append(link.tensor[0])
            link = link.previous
        return found


def starts(term: Term) -> list[Link]:
    """Return where a skip begins: at the term, or at each factor of a term that is a product."""
    if term.product is Product.MATRIX:
        return [Link(term.tensors[0], scale=None, projection=True)] if len(term.tensors) == 1 else []
    if len(term.tensors) == 1:
        scale = term.scale if term.product is Product.NONE else None
        gates = () if term.gate is None else (term.gate,)
        return [Link(term.tensors[0], scale=scale, gates=gates)]
    first, second = term.tensors[:2]
    return [Link(first, scale=None, gates=(second,)), Link(second, scale=None, gates=(first,))]


def follow(graph: Graph, link: Link, found: dict[int, list[Residual]], factor_of: FactorOf) -> Iterator[Link]:
    """Yield the links one operation further back; none where the skip ends."""
    node = link.tensor[0]
    residuals = found.get(node)
    if residuals:
        yield from _past_sum(link, residuals[0])
        return
    data = [
        (source, number, position) for source, number, position in graph.inputs[node] if not graph.parametric[source]
    ]
    effect = graph.effects[node]
    if effect is Effect.SCALE:
        yield from _past_factor(graph, link, data, factor_of)
    elif effect is Effect.PART:
        for source, number, _ in data[:1]:
            yield _further(link, (source, number), parts=(*link.parts, part_of(graph, node, link.tensor[1])))
    elif effect in _TRANSPARENT and len(data) <= _MAX_JOINED:
        for source, number, _ in data:
            yield _further(link, (source, number))
    elif effect is Effect.ADD:
        # Constants may be added on the way: a parameter, or a tensor that needs no gradient.
        moving = [item for item in data if not graph.is_raw(item[0])] or data
        if len(moving) == 1:
            yield _further(link, moving[0][:2])
    elif effect is Effect.PROJECT and len(data) == 2 and not link.projection:  # noqa: PLR2004 - the two factors
        yield from _past_mixing(graph, link)
    elif effect is Effect.BEND and len(data) == 1 and _may_bend(graph, link):
        yield _further(link, data[0][:2], bent=True)
    elif (effect in _LAYERS or graph.names[node] in _POOLING) and len(data) == 1 and not link.sums:
        if link.bent and effect is not Effect.NORM:
            return
        yield _further(link, data[0][:2], projection=True, resampled=link.resampled or resamples(graph, node))


def _may_bend(graph: Graph, link: Link) -> bool:
    """Tell whether what a skip has passed is one layer and nothing else: the activation before it may be its own."""
    worked = [node for node in link.nodes if graph.effects[node] is Effect.PROJECT]
    return len(worked) == 1 and not (link.bent or link.sums or link.gates)


_POOLING = frozenset({"Amax", "Amin", "Max", "Mean"})
"""Reductions that pool a window where windows were made an axis of their own."""
_TRANSPARENT = frozenset({Effect.HAND_ON, Effect.JOIN})
_LAYERS = frozenset({Effect.PROJECT, Effect.NORM, Effect.POOL, Effect.RESAMPLE})


def resamples(graph: Graph, node: int) -> bool:
    """Tell whether a node goes to another resolution: interpolation or a transposed convolution."""
    if graph.effects[node] is Effect.RESAMPLE:
        return True
    return graph.names[node] == "Convolution" and bool(graph.saved(node, "transposed"))


def _further(link: Link, tensor: Tensor, **changes: Any) -> Link:
    return replace(link, tensor=tensor, previous=link, length=link.length + 1, **changes)


def _past_sum(link: Link, residual: Residual) -> Iterator[Link]:
    """Step over an earlier residual sum to the stream it added to."""
    for start in starts(residual.skip):
        if start.tensor in residual.skip.tensors:
            yield _further(
                link,
                start.tensor,
                sums=(*link.sums, residual.node),
                scale=_times(link.scale, start.scale),
                gates=link.gates + start.gates,
                sign=link.sign * residual.skip.sign,
            )


def _past_factor(graph: Graph, link: Link, data: list[tuple[int, int, int]], factor_of: FactorOf) -> Iterator[Link]:
    node = link.tensor[0]
    name = graph.names[node]
    if len(data) == 1:
        source, number, position = data[0]
        if name == "Rsub" or (name == "Div" and position == 1):
            return  # 1 - x and 1 / x are no stream
        scale = constant_of(graph, node, factor_of)
        sign = -link.sign if name == "Neg" or (scale is not None and scale < 0) else link.sign
        yield _further(
            link, (source, number), sign=sign, scale=_times(link.scale, None if scale is None else abs(scale))
        )
    elif len(data) == 2:  # noqa: PLR2004 - the two factors
        yield from _past_product(graph, link, data[0][:2], data[1][:2])


def _past_product(graph: Graph, link: Link, one: Tensor, other: Tensor) -> Iterator[Link]:
    node = link.tensor[0]
    large, small = sorted((one, other), key=lambda tensor: -math.prod(graph.shape(tensor) or ()))
    spread = math.prod(graph.shape(large) or ()) > math.prod(graph.shape(small) or ())
    if spread and is_normalising(graph, node):
        if not link.sums:
            yield _further(link, large, projection=True)  # a norm written by hand
    elif graph.names[node] == "Mul" and one != other:
        if spread and graph.is_raw(large[0]) and graph.is_raw(small[0]):
            yield _further(link, large, scale=None)  # a constant of each sample, before anything is learned
        else:
            yield _further(link, one, scale=None, gates=(*link.gates, other))
            yield _further(link, other, scale=None, gates=(*link.gates, one))


def _past_mixing(graph: Graph, link: Link) -> Iterator[Link]:
    for streams, matrix in mixed_streams(graph, link.tensor[0]):
        yield _further(link, streams, scale=None, gates=(*link.gates, matrix))


def factors_in(graph: Graph, seen: Mapping[float, Factor]) -> FactorOf:
    """Return what tells the factor that a product of the graph applies, from what the forward saw."""

    def factor_of(node: int) -> Factor | None:
        noted = seen.get(graph.sequences[node])
        return noted if noted is not None else _saved_factor(graph, node)

    return factor_of


def _saved_factor(graph: Graph, node: int) -> Factor | None:
    """The number a product kept, where nobody saw it run (TorchScript)."""
    shown = shown_by(graph.nodes[node])
    # Only the overload with a number is asked for it: the other would have to unpack a tensor.
    if isinstance(shown, Trace) or shown.name().endswith("0"):
        return None
    value = graph.saved(node, "other")
    if not isinstance(value, int | float) or (graph.names[node] == "Div" and not value):
        return None
    return Factor(1.0 / value if graph.names[node] == "Div" else float(value))


def constant_of(graph: Graph, node: int, factor_of: FactorOf) -> float | None:
    """Return the constant a product multiplies by: 1 for a dropout's mask, None where it is learnt or unknown."""
    if graph.names[node] == "Neg":
        return -1.0
    if len(graph.inputs[node]) > 1:
        return None
    factor = factor_of(node)
    if factor is None or factor.elementwise:
        return 1.0
    return factor.value


def _times(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one * other
