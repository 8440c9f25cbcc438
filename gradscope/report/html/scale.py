"""Where an axis starts and ends, and which ticks a reader gets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gradscope.report.html.chart import Axis, Bars, Chart, Number

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
NICE_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
LONG_AXIS_DECADES = 2.5
SHORT_AXIS_DECADES = 0.7
"""From LONG on, powers of ten are ticks enough; below SHORT, 1-2-5 would leave one or none."""
HEADROOM = 0.08
"""Free space above and below the data, as a share of its span, so that no line touches the frame."""


def finite(values: Iterable[Number]) -> list[float]:
    """Keep the numbers that can be drawn."""
    return [value for value in values if value is not None and math.isfinite(value)]


def ticks(low: float, high: float, count: int, *, whole: bool = False) -> list[float]:
    """Choose about `count` round positions between two ends.

    Example:
        >>> ticks(0, 10, 5)
        [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    raw = span / max(count, 1)
    power = 10 ** math.floor(math.log10(raw))
    step = next(nice * power for nice in NICE_STEPS if nice * power >= raw * (1 - 1e-9))
    if whole:
        step = max(1.0, math.ceil(step))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Choose ticks (as log10) of a logarithmic axis: powers of ten, with 2 and 5 between them on a short one.

    Example:
        >>> [round(10**place, 1) for place in log_ticks(-0.5, 0.9)]
        [0.5, 1.0, 2.0, 5.0]
    """
    if high - low >= LONG_AXIS_DECADES:
        return ticks(low, high, 6, whole=True)
    powers = range(math.floor(low), math.ceil(high) + 1)
    digits = (1, 2, 5) if high - low > SHORT_AXIS_DECADES else (1, 1.5, 2, 3, 4, 5, 6, 7, 8)
    places = [power + math.log10(digit) for power in powers for digit in digits]
    return [place for place in places if low <= place <= high]


def tick_text(value: float, axis: Axis) -> str:
    """Write a tick: a power of ten on a logarithmic axis, else the number itself."""
    if axis.log:
        if value == 0:
            return "1"
        if value != int(value):
            return f"{10**value:.3g}"
        return "10" + str(int(value)).translate(SUPERSCRIPTS)
    return f"{value:g}"


def ends(chart: Chart) -> tuple[float, float, float, float]:
    """Find x and y ranges that hold everything a chart draws: (x low, x high, y low, y high)."""
    xs: list[float] = []
    ys: list[float] = []
    for layer in chart.layers:
        xs += finite(layer.x)
        ys += finite(layer.y)
        if isinstance(layer, Bars):
            xs += [x + layer.width for x in finite(layer.x)]
            ys.append(0.0)
        else:
            ys += finite(layer.low) + finite(layer.high)
    ys += [zone.start for zone in chart.zones if zone.axis == "y"]
    ys += [mark.y for mark in chart.marks]
    x_low, x_high = _ends(xs, chart.x, 0.0)
    y_low, y_high = _ends(ys, chart.y, HEADROOM)
    return x_low, x_high, y_low, y_high


def _ends(values: Sequence[float], axis: Axis, headroom: float) -> tuple[float, float]:
    low = min(values, default=0.0) if axis.low is None else axis.low
    high = max(values, default=1.0) if axis.high is None else axis.high
    smallest = 1.0 if axis.log else 1e-9
    if high - low < smallest:
        middle = (low + high) / 2
        low = middle - smallest / 2 if axis.low is None else axis.low
        high = max(middle + smallest / 2, low + smallest) if axis.high is None else max(axis.high, low + smallest)
    pad = (high - low) * headroom
    return (low - pad if axis.low is None else low), (high + pad if axis.high is None else high)
