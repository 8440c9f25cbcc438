"""The part of a step between what a model returns and the backward pass: a loss that we cannot run again.

Every function that makes something with a gradient there is noted, with the norms of what went in and came out and,
in the backward, of their gradients. Where a step comes out non-finite these tell in which of them it became so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from gradscope.probe.faults.births import Birth, plain_name, worst_number
from gradscope.probe.watching.calls import Call, CallTracker
from gradscope.probe.watching.modes import Function, LingeringMode, shielded
from gradscope.probe.watching.outputs import Output, Outputs
from gradscope.probe.watching.rows import Handle, Rows
from gradscope.probe.watching.source import user_frame
from gradscope.probe.watching.tensors import inside_transform, tensors_in
from gradscope.record import OUTSIDE_CALL

_MOST_FUNCTIONS = 256
"""Functions of one step that are noted; a loss has ten or twenty, a simulation between two forwards has no end."""


class _Given(NamedTuple):
    """Something that went into a function."""

    norm: Handle | None
    output: Output | None
    """The output that it was, where gradients come back to it."""


@dataclass(frozen=True)
class _Function:
    """One executed function."""

    name: str
    file: str | None
    line: int | None
    given: tuple[_Given, ...]
    constants: str
    """finite, inf or nan: the worst of the numbers among its arguments."""
    output: Output


class LossPart(LingeringMode):
    """Note the functions outside of the model's calls, up to the backward pass.

    Args:
        tracker: The model's calls, which are left to others.
        rows: Where norms go.
        outputs: What the model's calls returned.
    """

    def __init__(self, tracker: CallTracker, rows: Rows, outputs: Outputs) -> None:
        super().__init__()
        self.functions: frozenset[Callable[..., Any]] = frozenset()
        self.on_function: Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any], None] | None = None
        """Told of every call of one of `functions`, right after it."""
        self.outputs = Outputs(rows)
        """What the functions returned."""
        self._tracker = tracker
        self._rows = rows
        self._of_model = outputs
        self._functions: list[_Function] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        elsewhere = not self.awake or self._tracker.stack or torch._C._current_graph_task_id() != -1
        if elsewhere or inside_transform() or not torch.is_grad_enabled():
            return func(*args, **kwargs or {})
        return shielded(lambda call: self._look(func, call, args, kwargs or {}), func)

    def _look(self, func: Function, call: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = getattr(func, "__name__", "")
        before = self._given(args, kwargs) if name.endswith("_") else None  # in place: soon overwritten
        result = call(*args, **kwargs)
        self._note(name, args, kwargs, result, before)
        if func in self.functions and self.on_function is not None:
            self.on_function(func, args, kwargs, result)
        return result

    def births(self, number: Callable[[Handle | None], float | None]) -> list[Birth]:
        """Tell in which function the loss, else its gradient, became non-finite.

        Args:
            number: Turns a handle into its number.
        """
        for function in self._functions:
            after = _health([number(function.output.forward)])
            before = _worse(_health(number(given.norm) for given in function.given), function.constants)
            # A NaN may come of infinities, as those of a mask; an infinity has to come of finite numbers.
            if (after == "nan" and before != "nan") or (after == "inf" and before == "finite"):
                return [_birth("nonfinite_forward", function, before, after)]
        for function in reversed(self._functions):
            arrived = _health([number(function.output.gradient)])
            passed = _health(number(given.output.gradient) for given in function.given if given.output is not None)
            if arrived == "finite" and passed != "finite":
                return [_birth("nonfinite_backward", function, arrived, passed)]
        return []

    def _note(self, name: str, args: Any, kwargs: Any, result: Any, before: tuple[_Given, ...] | None) -> None:
        if len(self._functions) == _MOST_FUNCTIONS or not _has_gradient(result):
            return
        given = before if before is not None else self._given(args, kwargs)
        call = Call("", len(self._functions), None)
        self.outputs.add(call, result)
        output = self.outputs.main(call)
        if output is not None:
            constants = worst_number((args, kwargs), tensors=False)
            self._functions.append(_Function(name, *user_frame(), given, constants, output))

    def _given(self, args: Any, kwargs: Any) -> tuple[_Given, ...]:
        return tuple(
            _Given(self._rows.norm(tensor), self.outputs.find(tensor) or self._of_model.find(tensor))
            for tensor in tensors_in((args, kwargs), attributes=False)
            if tensor.is_floating_point() or tensor.is_complex()
        )


def _has_gradient(result: Any) -> bool:
    return any(tensor.requires_grad for tensor in tensors_in(result, attributes=False))


def _birth(kind: str, function: _Function, before: str, after: str) -> Birth:
    origin = "finite inputs" if before == "finite" else "inputs that contain infinities"
    name = plain_name(function.name)
    where = f"in the gradient of {name}, " if kind == "nonfinite_backward" else ""
    detail = f"{where}{after} came out of {origin}, between the model's output and the backward pass"
    return Birth(kind, "", OUTSIDE_CALL, name, function.file, function.line, detail)


def _health(norms: Iterable[float | None]) -> str:
    worst = "finite"
    for norm in norms:
        if norm is not None and not math.isfinite(norm):
            worst = _worse(worst, "nan" if math.isnan(norm) else "inf")
    return worst


def _worse(one: str, other: str) -> str:
    return max(one, other, key=("finite", "inf", "nan").index)
