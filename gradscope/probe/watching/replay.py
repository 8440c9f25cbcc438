"""Which call a recomputed call repeats, under re-entrant activation checkpointing.

There the forward first runs without gradients, and again, with them, inside the backward. The second run is the one
gradients flow through. It is matched to the first: the outermost call of a checkpointed segment by the memory of its
input (which the checkpoint keeps alive), the calls inside it by module and order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from gradscope.probe.watching.tensors import inside_transform, tensors_in

if TYPE_CHECKING:
    from gradscope.probe.watching.calls import Call


class Replay:
    """The calls of a step that ran without a graph and may be repeated with one."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[Call, int | None]]] = {}
        self._open: list[Call] = []

    def expect(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note a call that ran without gradients."""
        self._waiting.setdefault(call.module, []).append((call, _memory((args, kwargs))))

    def open(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """Return the call that a call inside the backward repeats, None where it repeats none that waits."""
        waiting = self._waiting.get(name)
        if not waiting or not torch.is_grad_enabled():
            return None
        index = self._inner(waiting) if self._open else _outermost(waiting, _memory((args, kwargs)))
        if index is None:
            return None
        call, _ = waiting.pop(index)
        self._open.append(call)
        return call

    def close(self, call: Call) -> None:
        """End a repeated call."""
        while self._open and self._open.pop() is not call:
            pass

    def _inner(self, waiting: list[tuple[Call, int | None]]) -> int | None:
        return next((i for i, (call, _) in enumerate(waiting) if call.parent is self._open[-1]), None)


def _outermost(waiting: list[tuple[Call, int | None]], memory: int | None) -> int:
    # Segments are recomputed last first, so the last call is the likelier one where the memory does not tell.
    same = [i for i, (_, other) in enumerate(waiting) if memory is not None and other == memory]
    return same[-1] if same else len(waiting) - 1


def _memory(inputs: Any) -> int | None:
    if inside_transform():
        return None
    first = next(tensors_in(inputs, attributes=False), None)
    if first is None or first.is_meta or first.layout is not torch.strided:
        return None
    try:
        return first.data_ptr()
    except RuntimeError:  # tensor subclasses without storage of their own
        return None
