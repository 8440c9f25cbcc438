"""Which autograd nodes read data that need no gradient: such inputs autograd leaves out of the graph."""

from __future__ import annotations

from typing import Any

from gradscope.probe.structure.operations import Effect, effect_of, operation
from gradscope.probe.structure.parametric import lacks_data

_RESHAPES = frozenset({"View", "UnsafeView", "ReshapeAlias", "Unsqueeze", "Squeeze"})


def readers_of(node: Any, positions: list[int], before: int) -> list[tuple[Any, int]]:
    """Return the nodes that read inputs which autograd left out, and where among their inputs.

    A linear layer on more than two axes is a product between two reshapes: it is the product that works on the input.
    An attention is a function of many operations: its projections do.

    Args:
        node: The node of the function's output.
        positions: Where the inputs stand among the function's arguments.
        before: The sequence number of the function's first operation.
    """
    while operation(node.name()) in _RESHAPES and node.next_functions[0][0] is not None:
        node = node.next_functions[0][0]
    missing = _missing(node)
    if missing:
        return [(node, position if position in missing else missing[0]) for position in positions]
    inner = sorted(_lacking(node, before), key=lambda one: one._sequence_nr()) if positions else []
    return [(one, _missing(one)[0]) for one in inner] or [(node, position) for position in positions]


def _missing(node: Any) -> list[int]:
    return [place for place, (source, _) in enumerate(node.next_functions) if source is None]


def _lacking(node: Any, before: int) -> set[Any]:
    """The operations with weights, behind a node and in the same function, whose data autograd left out."""
    stack, seen = [node], {node}
    while stack:
        for source, _ in stack.pop().next_functions:
            if source is not None and source not in seen and source._sequence_nr() >= before:
                seen.add(source)
                stack.append(source)
    return {one for one in seen if effect_of(operation(one.name())) is Effect.PROJECT and lacks_data(one)}
