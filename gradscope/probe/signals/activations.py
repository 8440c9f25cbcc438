"""Dead and saturated units of activation functions, whether called as modules or as functions.

A unit of the ReLU family is dead where it is off for every sample (and position) looked at. A value of a bounded
function is saturated where the function's derivative is below 2 % of its maximum.

Cost: default level; two small kernels per activation on at most 2048 values a unit (dead) or 32k values (saturated).
A unit that is on for fewer than one in 2048 values may therefore be counted as dead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradscope.probe.signals.layout import Layout, thinned
from gradscope.probe.signals.observer import CallKey, Observer, Place, Readings, StepContext

SATURATED_SHARE = 0.02
"""Derivative, as a share of its maximum, below which a value counts as saturated: judgement, a fiftieth."""
MIN_VALUES_PER_UNIT = 8
"""With n values a healthy unit is off for all of them with probability 2^-n: 0.4 % at 8."""
MAX_VALUES_PER_UNIT, MAX_ELEMENTS = 2048, 32768
"""Values looked at of one unit, and of one layer where only their share counts."""
MANY_POSITIONS = 32
"""From here on a reduction along positions runs at the speed of vectors."""

_RELU: frozenset[Callable[..., Any]] = frozenset({
    F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_, F.relu6, F.threshold, torch.threshold,
    torch.clamp_min, Tensor.clamp_min, Tensor.clamp, torch.clamp,
})  # fmt: skip

# Output value at which the derivative falls below 2 % of its maximum, on the side or sides where it does:
# tanh' = 1 - y^2; sigmoid' = y (1 - y), maximum 1/4; softsign' = (1 - |y|)^2; the hard ones are flat at their ends.
_TANH_EDGE = (1 - SATURATED_SHARE) ** 0.5
_SIGMOID_EDGE = 0.5 * (1 + (1 - SATURATED_SHARE) ** 0.5)
_SOFTSIGN_EDGE = 1 - SATURATED_SHARE**0.5


def _outside(low: float, high: float) -> Callable[[Tensor], Tensor]:
    return lambda y: (y >= high) | (y <= low)


_TANH = _outside(-_TANH_EDGE, _TANH_EDGE)
_SIGMOID = _outside(1 - _SIGMOID_EDGE, _SIGMOID_EDGE)
_BOUNDED: dict[Callable[..., Any], Callable[[Tensor], Tensor]] = {
    torch.tanh: _TANH, torch.tanh_: _TANH, Tensor.tanh: _TANH, Tensor.tanh_: _TANH, F.tanh: _TANH,
    torch.sigmoid: _SIGMOID, torch.sigmoid_: _SIGMOID, Tensor.sigmoid: _SIGMOID, Tensor.sigmoid_: _SIGMOID,
    F.sigmoid: _SIGMOID, torch.special.expit: _SIGMOID, F.hardsigmoid: _outside(0.0, 1.0),
    F.softsign: _outside(-_SOFTSIGN_EDGE, _SOFTSIGN_EDGE), F.hardtanh: _outside(-1.0, 1.0),
    F.hardtanh_: _outside(-1.0, 1.0),
}  # fmt: skip


class Activations(Observer):
    """dead_fraction and saturated_fraction of every call of an activation function.

    Several activations inside one module call are told apart by nothing the recording has a column for; the worst
    of them stands for the call.
    """

    functions = _RELU | frozenset(_BOUNDED)

    def __init__(self, readings: Readings) -> None:
        super().__init__(readings)
        self._layout: Layout | None = None
        self._seen: dict[tuple[str, str, int], list[Tensor]] = {}

    def attach(self, model: nn.Module) -> None:  # noqa: D102
        self._layout = Layout(model)

    def begin(self, step: int, stations: frozenset[tuple[str, int]] | None) -> None:  # noqa: D102
        self._seen.clear()

    def function(  # noqa: D102
        self, call: CallKey, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        if not isinstance(result, Tensor) or result.dim() < 2 or not result.is_floating_point():  # noqa: PLR2004
            return
        if func in _BOUNDED:
            values = _BOUNDED[func](thinned(result, MAX_ELEMENTS)).to(torch.float32).mean()
            self._keep("saturated_fraction", call, values)
        elif _is_relu(func, args, kwargs):
            self._dead(call, result)

    def _dead(self, call: CallKey, output: Tensor) -> None:
        assert self._layout is not None
        axis = self._layout.unit_axis(tuple(output.shape))
        num_units = output.shape[axis]
        if num_units == 0 or output.numel() // num_units < MIN_VALUES_PER_UNIT:
            return
        some = thinned(output, MAX_VALUES_PER_UNIT * num_units, kept_axes=(axis,))
        self._keep("dead_fraction", call, (_highest(some, axis) <= 0).to(torch.float32).mean())

    def _keep(self, metric: str, call: CallKey, value: Tensor) -> None:
        self._seen.setdefault((metric, call.module, call.call), []).append(value)

    def finish(self, context: StepContext) -> None:  # noqa: D102
        for (metric, module, call), values in self._seen.items():
            self.readings.add_derived(metric, Place(module, call), torch.stack(values), max)
        self._seen.clear()


def _highest(values: Tensor, axis: int) -> Tensor:
    """Return the largest value of every unit; axis by axis, for images ten times faster than all at once."""
    if axis == values.dim() - 1:
        return values.flatten(0, -2).amax(0)
    positions = values.flatten(2)
    many = positions.shape[2] >= MANY_POSITIONS
    return positions.amax(2).amax(0) if many else positions.amax(0).amax(1)


def _is_relu(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tell x.clamp(min=0) from other clamps; thresholds other than 0 are not this family."""
    given = [*args[1:3], None, None][:2]
    if func in (torch.clamp, Tensor.clamp):
        return _is_zero(kwargs.get("min", given[0])) and kwargs.get("max", given[1]) is None
    if func in (torch.clamp_min, Tensor.clamp_min):
        return _is_zero(kwargs.get("min", given[0]))
    if func in (F.threshold, torch.threshold):
        return _is_zero(kwargs.get("threshold", given[0])) and _is_zero(kwargs.get("value", given[1]))
    return True


def _is_zero(value: Any) -> bool:
    return isinstance(value, int | float) and value == 0
