"""Which part of a tensor an operation takes, so that two takers can be told apart."""

from __future__ import annotations

from typing import Any, NamedTuple

from gradscope.probe.structure.graph import Graph


class Part(NamedTuple):
    """A range of one axis. The axis is known by its size, which survives transpositions."""

    size: int
    start: int
    stop: int


def part_of(graph: Graph, node: int, output_number: int) -> Part | None:
    """Return the part that output `output_number` of a node is, None where it cannot be told."""
    build = _BUILDERS.get(graph.names[node])
    if build is None or not graph.inputs[node]:
        return None
    source, number, _ = graph.inputs[node][0]
    shape = graph.shape((source, number))
    if shape is None:
        return None
    dim = graph.saved(node, "dim")
    if not isinstance(dim, int):
        return None
    dim = signed(dim) % len(shape)
    return build(graph, node, output_number, dim, shape[dim])


def piece_of(graph: Graph, node: int, output_number: int) -> tuple[int, int] | None:
    """Return the tensor that was put next to others and that an operation takes out again, whole; None for all else.

    The halves of a coupling are: joined at the end of one block, split at the beginning of the next.
    """
    if graph.names[node] not in _BUILDERS or not graph.inputs[node]:
        return None
    joined = graph.inputs[node][0][0]
    part = part_of(graph, node, output_number) if graph.names[joined] == "Cat" else None
    dim, shape = graph.saved(joined, "dim"), graph.shape((joined, 0))
    if part is None or shape is None or not isinstance(dim, int):
        return None
    dim = signed(dim) % len(shape)
    if dim != signed(graph.saved(node, "dim")) % len(shape):
        return None
    start = 0
    for source, number, _ in sorted(graph.inputs[joined], key=lambda edge: edge[2]):
        size = (graph.shape((source, number)) or shape)[dim]
        if (start, start + size) == (part.start, part.stop):
            return source, number
        start += size
    return None


def resolved(graph: Graph, tensor: tuple[int, int]) -> tuple[int, int]:
    """Return the piece that a tensor is, where it was put next to others and taken out again; else the tensor."""
    piece = piece_of(graph, *tensor)
    return tensor if piece is None or graph.parametric[piece[0]] else piece


def overlap(one: Part | None, other: Part | None) -> bool:
    """Tell whether two parts may share elements; parts of axes of different size are taken to."""
    if one is None or other is None or one.size != other.size:
        return True
    return one.start < other.stop and other.start < one.stop


def _slice(graph: Graph, node: int, _: int, __: int, size: int) -> Part | None:
    start, stop = _whole(graph.saved(node, "start"), 0), _whole(graph.saved(node, "end"), size)
    return Part(size, start + size if start < 0 else start, stop + size if stop < 0 else min(stop, size))


def _index(graph: Graph, node: int, number: int, dim: int, size: int) -> Part | None:
    """A part that was taken with brackets, of a tensor that needs no gradient: `x[:, t]`."""
    build = _slice if graph.saved(node, "index") is None else _select
    return build(graph, node, number, dim, size)


def _select(graph: Graph, node: int, _: int, __: int, size: int) -> Part | None:
    index = _whole(graph.saved(node, "index"), 0)
    index = index + size if index < 0 else index
    return Part(size, index, index + 1)


def _split(graph: Graph, node: int, output_number: int, dim: int, size: int) -> Part | None:
    sizes = graph.saved(node, "split_sizes")
    if isinstance(sizes, tuple | list):
        start = sum(int(item) for item in sizes[:output_number])
        return Part(size, start, start + int(sizes[output_number]))
    step = graph.saved(node, "split_size")
    if not isinstance(step, int):
        return None
    return Part(size, output_number * step, min(size, (output_number + 1) * step))


def _unbind(_: Graph, __: int, output_number: int, ___: int, size: int) -> Part | None:
    return Part(size, output_number, output_number + 1)


def _whole(value: Any, default: int) -> int:
    if not isinstance(value, int):
        return default
    return signed(value)


def signed(value: int) -> int:
    """Autograd saves numbers as unsigned ones: -1 is 2^64 - 1."""
    return value - (1 << 64) if value >= 1 << 63 else value


_BUILDERS = {
    "Index": _index, "Slice": _slice, "Narrow": _slice, "Select": _select, "Split": _split, "SplitWithSizes": _split,
    "UnsafeSplit": _split, "UnsafeSplitWithSizes": _split, "Unbind": _unbind,
}  # fmt: skip
