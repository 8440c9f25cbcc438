"""Which shape a number's dependence on depth has, as far as the data tell, and what it predicts. Without torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gradscope.experiments.depth_shapes import NUM_PARAMETERS, Fit, Point, Shape, fit
from gradscope.metrics.interval import Interval

FEWEST_DEPTHS = 3
"""Different depths (count) below which a law has nothing to be tested against."""

DECISIVE_RATIO = 20.0
"""Likelihood ratio from which one shape is decided against another (Royall 1997: 8 is fairly strong, 32 strong)."""

FEWEST_POINTS = 4
"""Networks (count) below which a line through them leaves one number at most to judge its noise by."""

SLOPED: tuple[Shape, ...] = ("growing stream", "power law", "exponential", "accelerating")
"""From the mildest when extrapolated to the wildest."""


@dataclass(frozen=True)
class DepthLaw:
    """The shapes, compared.

    Attributes:
        best: The mildest shape that the data do not rule out, or flat where the likeliest slope may be zero.
        rivals: Shapes that the data do not rule out against it.
        points: What was fitted.
    """

    best: Fit
    rivals: tuple[Fit, ...]
    points: tuple[Point, ...]

    @property
    def decided(self) -> bool:
        """Whether the data rule out every other shape."""
        return not self.rivals

    @property
    def deepest(self) -> float:
        """The greatest depth that was measured."""
        return max(point.depth for point in self.points)

    def predict(self, depth: float) -> Interval:
        """Predict one network's value at a depth; while shapes are undecided the interval covers all that remain."""
        best = self.best.predict(depth)
        ends = [end for one in (self.best, *self.rivals) for end in _ends(one.predict(depth))]
        return Interval(best.mean, min(ends), max(ends), best.num_values, best.over)


def _ends(interval: Interval) -> tuple[float, float]:
    low = interval.mean if interval.low is None else interval.low
    return low, interval.mean if interval.high is None else interval.high


@dataclass(frozen=True)
class NoLaw:
    """Why no law could be fitted, in one sentence."""

    reason: str


def find_law(points: Sequence[Point], shapes: Sequence[Shape] = SLOPED) -> DepthLaw | NoLaw:
    """Fit the shapes and compare them by likelihood, each parameter more costing one (Akaike 1974).

    Flat is what remains where the best shape's slope cannot be told from zero.

    Args:
        points: The networks.
        shapes: Those to choose from, the mildest when extrapolated first.

    Returns:
        The comparison, or why the data do not allow one.
    """
    finite = [point for point in points if math.isfinite(point.value) and point.depth > 0]
    num_depths = len({point.depth for point in finite})
    if num_depths < FEWEST_DEPTHS:
        lost = len(points) - len(finite)
        without = f"; {lost} of {len(points)} networks gave no finite number" if lost else ""
        depths = "one depth is" if num_depths == 1 else f"{num_depths} different depths are"
        return NoLaw(f"{depths} too few for a law, which takes {FEWEST_DEPTHS}{without}")
    if len(finite) < FEWEST_POINTS:
        return NoLaw(f"{len(finite)} networks are too few for a law: sweep more depths or more seeds")
    fits = [fit(finite, shape) for shape in shapes]
    lowest = min(_score(one) for one in fits)
    possible = [one for one in fits if _score(one) - lowest < 2 * math.log(DECISIVE_RATIO)]
    likeliest = min((one for one in fits if one.shape != "growing stream"), key=_score)
    if not likeliest.slope_interval.excludes_zero:
        return DepthLaw(fit(finite, "flat"), tuple(possible), tuple(finite))
    return DepthLaw(possible[0], tuple(possible[1:]), tuple(finite))


def _score(one: Fit) -> float:
    """Akaike's criterion: lower is better."""
    return one.deviance + 2 * NUM_PARAMETERS[one.shape]
