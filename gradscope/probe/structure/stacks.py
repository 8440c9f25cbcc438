"""Tensors put next to each other, then taken apart or summed: `cat([x, f(x)]).chunk(2)`, `w @ stack([x, f(x)])`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from torch.nn import Parameter

from gradscope.probe.structure.graph import Graph, Tensor
from gradscope.probe.structure.operations import Effect
from gradscope.probe.structure.parts import part_of, piece_of, signed

MAX_STACKED = 8
"""More tensors than this in a stack that is summed are a reduction, not an addition of branches."""
_MAX_VIEWS = 8
"""Changes of shape between a stack and what takes it apart or sums it; an einsum makes up to four."""


def take_apart(graph: Graph) -> None:
    """Let sums of tensors that were put together and taken apart again, scaled maybe, read these tensors themselves.

    The gradient that is sent back is the same: the way through a concatenation and a split changes nothing. Where what
    was taken apart goes different ways, as the halves of a coupling do, the split is left as it is.
    """
    for node, name in enumerate(graph.names):
        if name not in _ADDING or len(graph.inputs[node]) < 2:  # noqa: PLR2004 - two terms
            continue
        ways = [_to_part(graph, node, i) for i in range(len(graph.inputs[node]))]
        joined = Counter(graph.inputs[graph.inputs[reader][i][0]][0][0] for reader, i in filter(None, ways))
        for reader, i in filter(None, ways):
            part, number, position = graph.inputs[reader][i]
            piece = _piece(graph, part, number) if joined[graph.inputs[part][0][0]] > 1 else None
            if piece is not None and not _is_fixed(graph, piece):
                graph.inputs[reader][i] = (*piece, position)


def is_taken_apart(graph: Graph, node: int) -> bool:
    """Tell whether all that reads tensors put together takes parts of them that sums have come to read as they were."""
    readers = [reader for reader, _, _ in graph.consumers[node]]
    return bool(readers) and all(graph.effects[one] is Effect.PART and not graph.consumers[one] for one in readers)


_ADDING = frozenset({"Add", "Sub", "Rsub", "Addcmul", "Lerp"})


def _to_part(graph: Graph, node: int, i: int) -> tuple[int, int] | None:
    """Return who reads a part of a tensor, as which input, going back from an input of a sum; None if no one does."""
    for _ in range(_MAX_VIEWS):
        source = graph.inputs[node][i][0]
        if graph.effects[source] is Effect.PART and graph.inputs[source]:
            return node, i
        if graph.effects[source] not in _ALONG or len(graph.inputs[source]) != 1:
            return None
        node, i = source, 0
    return None


_ALONG = frozenset({Effect.HAND_ON, Effect.SCALE})


def _piece(graph: Graph, node: int, number: int) -> Tensor | None:
    """Return the tensor that was put next to others and that an operation takes out again, whole; None for all else."""
    if graph.names[node] not in _DROPPING:
        return piece_of(graph, node, number)
    part, source = part_of(graph, node, number), graph.inputs[node][0][:2]
    shape = graph.shape(source)
    if part is None or shape is None:
        return None
    stack = stack_behind(graph, source, signed(graph.saved(node, "dim")) % len(shape))
    edges = graph.inputs[stack[0]] if stack is not None else []
    return next((edge[:2] for edge in edges if edge[2] == part.start), None)


def _is_fixed(graph: Graph, tensor: Tensor) -> bool:
    """Tell whether a tensor is a parameter, or a reshape of one: beside data a learned token is one of the data."""
    while graph.effects[tensor[0]] is Effect.HAND_ON and len(graph.inputs[tensor[0]]) == 1:
        tensor = graph.inputs[tensor[0]][0][:2]
    return isinstance(getattr(graph.nodes[tensor[0]], "variable", None), Parameter)


_DROPPING = frozenset({"Select", "Unbind"})
"""Operations that take one of an axis, and leave that axis out."""


def stack_behind(graph: Graph, tensor: Tensor, axis: int) -> tuple[int, tuple[int, ...]] | None:
    """Return the operation that put tensors next to each other along an axis of a tensor, each taking one place of it.

    Args:
        graph: The graph.
        tensor: The tensor.
        axis: The axis, counted from the first.

    Returns:
        The operation, and the changes of shape behind it; None where the axis holds something else.
    """
    passed: tuple[int, ...] = ()
    for _ in range(_MAX_VIEWS):
        node = tensor[0]
        after, inputs = graph.shape(tensor), graph.inputs[node]
        if after is None or not inputs:
            return None
        if graph.names[node] in {"Stack", "Cat"}:
            dim = graph.saved(node, "dim")
            whole = graph.names[node] == "Stack" or len(inputs) == after[axis]
            return (node, passed) if whole and isinstance(dim, int) and signed(dim) % len(after) == axis else None
        before = graph.shape(inputs[0][:2])
        if graph.effects[node] is not Effect.HAND_ON or len(inputs) != 1 or before is None:
            return None
        passed = (node, *passed)
        if _is_row_of_equals(graph, inputs[0][0], before, after, axis):
            return inputs[0][0], passed
        found = _axis_before(graph, node, before, after, axis)
        if found is None:
            return None
        tensor, axis = inputs[0][:2], found
    return None


def _axis_before(graph: Graph, node: int, before: Sequence[int], after: Sequence[int], axis: int) -> int | None:
    """Return which axis a change of shape has made an axis of; None where it is none of its own."""
    name, rank = graph.names[node], len(before)
    if name in {"T", "Mt", "MH", "Mh"}:
        return {rank - 1: rank - 2, rank - 2: rank - 1}.get(axis, axis)
    if name == "Transpose":
        first, second = (signed(graph.saved(node, key)) % rank for key in ("dim0", "dim1"))
        return {first: second, second: first}.get(axis, axis)
    if name == "Permute":
        return signed(graph.saved(node, "dims")[axis]) % rank
    if name == "Expand":
        return axis - (len(after) - rank) if axis >= len(after) - rank else None
    if name in _VIEWS:
        ahead = math.prod(after[:axis])
        return next((i for i in range(rank) if before[i] == after[axis] and math.prod(before[:i]) == ahead), None)
    return axis if tuple(before) == tuple(after) and name in _KEEPING else None


_VIEWS = frozenset({"View", "UnsafeView", "ReshapeAlias", "Unsqueeze", "Squeeze", "Reshape"})
_KEEPING = frozenset({"Alias", "Clone", "Contiguous", "ToCopy"})


def _is_row_of_equals(graph: Graph, node: int, before: Sequence[int], after: Sequence[int], axis: int) -> bool:
    """Tell whether tensors of one size get an axis of their own: cat([x, f(x)]).view(2, ...)."""
    dim = graph.saved(node, "dim")
    if graph.names[node] != "Cat" or not isinstance(dim, int) or len(graph.inputs[node]) != after[axis]:
        return False
    dim = signed(dim) % len(before)
    sizes = {(graph.shape((source, number)) or before)[dim] for source, number, _ in graph.inputs[node]}
    return len(sizes) == 1 and math.prod(before[:dim]) == math.prod(after[:axis])


CONTRACTED = {"Mm": (-1, -2), "Bmm": (-1, -2), "Mv": (-1,)}
"""Products of matrices, and the axis that each sums over, by the position of the input."""


def stack_summed(graph: Graph, node: int) -> tuple[int, tuple[int, ...], Tensor | None] | None:
    """Return the stack that a node sums along the axis on which the tensors were stacked.

    Returns:
        The stack, the operations between it and the sum, and the weights where each tensor is weighed.
    """
    name = graph.names[node]
    if name in {"Sum", "Mean"}:
        return _summed(graph, node)
    for source, number, position in graph.inputs[node] if name in CONTRACTED else ():
        shape = graph.shape((source, number))
        if position < len(CONTRACTED[name]) and shape is not None:
            found = stack_behind(graph, (source, number), CONTRACTED[name][position] % len(shape))
            if found is not None and _makes_one(graph, found[0], node):
                return *found, _beside(graph, node, position)
    return None


def _makes_one(graph: Graph, stack: int, node: int) -> bool:
    """Tell whether a product makes one tensor of those stacked, not several mixtures."""
    pieces, result = graph.inputs[stack], graph.shape((node, 0))
    before = graph.shape((stack, 0))
    if not 1 < len(pieces) <= MAX_STACKED or result is None or before is None:
        return False
    return math.prod(result) * len(pieces) == math.prod(before)


def _summed(graph: Graph, node: int) -> tuple[int, tuple[int, ...], Tensor | None] | None:
    dims, edges = graph.saved(node, "dim"), graph.inputs[node]
    shape = graph.shape(edges[0][:2]) if len(edges) == 1 else None
    if shape is None or not isinstance(dims, tuple | list) or len(dims) != 1:
        return None
    axis, summed = signed(dims[0]) % len(shape), edges[0][:2]
    weighed = graph.names[summed[0]] == "Mul"
    for source, number, position in graph.inputs[summed[0]] if weighed else ((*summed, 0),):
        found = stack_behind(graph, (source, number), axis) if graph.shape((source, number)) == shape else None
        if found is not None and 1 < len(graph.inputs[found[0]]) <= MAX_STACKED:
            if not weighed:
                return *found, None
            return found[0], (*found[1], summed[0]), _beside(graph, summed[0], position)
    return None


def _beside(graph: Graph, node: int, position: int) -> Tensor | None:
    return next((edge[:2] for edge in graph.inputs[node] if edge[2] != position), None)
