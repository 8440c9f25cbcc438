"""The bare autograd graph behind some roots: quickly walked, to tell whether a graph is that of an earlier step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from gradscope.probe.deep import make_room

_NAMELESS = "CppFunction"
"""The class of all nodes that Python knows no class for; these are told apart by name."""


class Skeleton(NamedTuple):
    """A graph without tensors, constants and everything else that autograd keeps.

    Attributes:
        nodes: The autograd nodes, in the order of a walk that is the same for graphs that are.
        signature: Equal for graphs of the same nodes and edges.
    """

    nodes: list[Any]
    signature: int


def skeleton_of(roots: Iterable[Any]) -> Skeleton:
    """Walk the graph behind some autograd nodes, breadth first.

    Args:
        roots: The nodes, in an order that is the same for every step.
    """
    nodes = list(dict.fromkeys(roots))
    numbers = {node: number for number, node in enumerate(nodes)}
    edges: list[int] = []
    note, known = edges.append, numbers.get
    for node in nodes:  # grows as it is walked
        for source, output_nr in node.next_functions:
            if source is None:
                note(-1)
                continue
            number = known(source)
            if number is None:
                number = numbers[source] = len(nodes)
                nodes.append(source)
            note(number)
            note(output_nr)
        note(-2)
    make_room(len(nodes))
    kinds: list[Any] = list(map(type, nodes))
    if any(kind.__name__ == _NAMELESS for kind in set(kinds)):
        kinds = [node.name() if kind.__name__ == _NAMELESS else kind for node, kind in zip(nodes, kinds, strict=True)]
    return Skeleton(nodes, hash((tuple(kinds), tuple(edges))))
