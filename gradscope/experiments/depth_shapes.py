"""The shapes in which a number may depend on depth, each fitted by least squares. Without torch.

Fitted to D = log10(|g_0| / |g_L|): "exponential" is a constant number of decades per block, "power law" a constant
number per factor of ten in depth, "growing stream" the law of Pre-LN, 0.5 log10(1 + c L) (Xiong 2020: the stream's
variance grows by c per block), and "accelerating" grows with the square of depth: every block adds more than the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from gradscope.metrics.interval import CONFIDENCE, Interval, student_quantile

Shape = Literal["flat", "power law", "growing stream", "exponential", "accelerating"]

SMALLEST_NOISE = 0.01
"""Least residual standard deviation assumed, in the value's unit: the quietest wirings differ by as much over seeds."""

LINEAR: dict[Shape, Callable[[float], float]] = {
    "flat": lambda _depth: 0.0,
    "power law": math.log10,
    "exponential": lambda depth: depth,
    "accelerating": lambda depth: depth**2,
}
"""Regressor of the shapes that are intercept + slope * regressor."""

NUM_PARAMETERS: dict[Shape, int] = {
    "flat": 1,
    "growing stream": 1,
    "power law": 2,
    "exponential": 2,
    "accelerating": 2,
}


@dataclass(frozen=True)
class Point:
    """One measured network: its depth in blocks and the number that depends on it."""

    depth: float
    value: float


@dataclass(frozen=True)
class Fit:
    """One fitted shape.

    Attributes:
        shape: Which shape.
        intercept: In the value's unit; 0 for the growing stream.
        slope: In the value's unit per block, per factor of ten or per squared block; for the growing stream its c.
        noise: Residual standard deviation at weight 1.
        degrees: Points less parameters.
        deviance: -2 log likelihood of the points.
        weight_sum: Sum of the weights; infinite where there is no intercept to be uncertain of.
        centre: Weighted mean of the regressor.
        spread: Weighted sum of squares of the regressor (or sensitivity) about it; 0 when flat.
    """

    shape: Shape
    intercept: float
    slope: float
    noise: float
    degrees: int
    deviance: float
    weight_sum: float
    centre: float
    spread: float

    def value(self, depth: float) -> float:
        """Return the fitted value at a depth."""
        if self.shape == "growing stream":
            return stream_decades(self.slope, depth)
        return self.intercept + self.slope * LINEAR[self.shape](depth)

    def predict(self, depth: float) -> Interval:
        """Predict one network's value at a depth, with the interval in which it should lie."""
        reach = self._sensitivity(depth) - self.centre
        variance = 1 / weight(self.shape, depth) + 1 / self.weight_sum
        if self.spread:
            variance += reach**2 / self.spread
        return self._interval(self.value(depth), variance)

    @property
    def slope_interval(self) -> Interval:
        """The slope (or c) with its interval."""
        return self._interval(self.slope, 1 / self.spread if self.spread else 0.0)

    def _sensitivity(self, depth: float) -> float:
        """Change of the value per change of the slope."""
        if self.shape == "growing stream":
            return stream_sensitivity(self.slope, depth)
        return LINEAR[self.shape](depth)

    def _interval(self, mean: float, variance: float) -> Interval:
        half = student_quantile(0.5 + CONFIDENCE / 2, self.degrees) * self.noise * math.sqrt(variance)
        return Interval(mean, mean - half, mean + half, self.degrees + NUM_PARAMETERS[self.shape], "networks")


def stream_decades(growth: float, depth: float) -> float:
    """Pre-LN's law: 0.5 log10(1 + c L)."""
    return 0.5 * math.log10(1 + growth * depth)


def stream_sensitivity(growth: float, depth: float) -> float:
    """Derivative of `stream_decades` with respect to c."""
    return 0.5 * depth / ((1 + growth * depth) * math.log(10))


def weight(shape: Shape, depth: float) -> float:
    """Inverse relative variance of a value: a product of random factors is a random walk in its logarithm."""
    return 1 / depth if shape in ("exponential", "accelerating") else 1.0


def fit(points: Sequence[Point], shape: Shape) -> Fit:
    """Fit one shape by weighted least squares.

    >>> fit([Point(6, 1.2), Point(12, 2.4), Point(24, 4.8)], "exponential").slope
    0.2
    """
    if shape == "growing stream":
        return _fit_stream(points)
    weights = [weight(shape, point.depth) for point in points]
    xs, ys = [LINEAR[shape](point.depth) for point in points], [point.value for point in points]
    total = sum(weights)
    centre = sum(w * x for w, x in zip(weights, xs, strict=True)) / total
    height = sum(w * y for w, y in zip(weights, ys, strict=True)) / total
    spread = sum(w * (x - centre) ** 2 for w, x in zip(weights, xs, strict=True))
    shared = sum(w * (x - centre) * (y - height) for w, x, y in zip(weights, xs, ys, strict=True))
    slope = shared / spread if spread else 0.0
    intercept = height - slope * centre
    squares = sum(w * (y - intercept - slope * x) ** 2 for w, x, y in zip(weights, xs, ys, strict=True))
    noise, degrees, deviance = _remainder(squares, weights, shape)
    return Fit(shape, intercept, round(slope, 12), noise, degrees, deviance, total, centre, spread)


def _fit_stream(points: Sequence[Point]) -> Fit:
    """Find c by golden section in its logarithm: the squares have one minimum there."""

    def squares(log_growth: float) -> float:
        growth = math.exp(log_growth)
        return sum((point.value - stream_decades(growth, point.depth)) ** 2 for point in points)

    growth = math.exp(_minimum(squares, math.log(SLOWEST), math.log(FASTEST)))
    noise, degrees, deviance = _remainder(squares(math.log(growth)), [1.0] * len(points), "growing stream")
    spread = sum(stream_sensitivity(growth, point.depth) ** 2 for point in points)
    return Fit("growing stream", 0.0, growth, noise, degrees, deviance, math.inf, 0.0, spread)


SLOWEST, FASTEST = 1e-6, 1e6
"""Variance growth per block between which c is looked for."""

_GOLDEN = (math.sqrt(5) - 1) / 2


def _minimum(function: Callable[[float], float], low: float, high: float) -> float:
    while high - low > 1e-9 * (1 + abs(low)):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        low, high = (low, right) if function(left) <= function(right) else (left, high)
    return (low + high) / 2


def _remainder(squares: float, weights: Sequence[float], shape: Shape) -> tuple[float, int, float]:
    """Return noise, degrees of freedom and deviance of what a fit leaves over."""
    n = len(weights)
    degrees = max(n - NUM_PARAMETERS[shape], 1)
    noise = math.sqrt(max(squares / degrees, SMALLEST_NOISE**2))
    variance = max(squares / n, SMALLEST_NOISE**2)
    deviance = n * (math.log(2 * math.pi * variance) + 1) - sum(math.log(w) for w in weights)
    return noise, degrees, deviance
