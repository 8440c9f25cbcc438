"""Receiver operating curves of single numbers and of rules that combine them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from benchmarks.calibration.cases import Case

Score = Callable[[Case], float]
"""Higher is worse; NaN counts as harmless."""


def magnitude(metric: str) -> Score:
    """Score by the absolute value of a metric."""
    return lambda case: abs(case.numbers.get(metric, math.nan))


def value(metric: str) -> Score:
    """Score by a metric."""
    return lambda case: case.numbers.get(metric, math.nan)


def curve(some: Sequence[Case], score: Score) -> list[tuple[float, float]]:
    """Return (false positive rate, true positive rate) for every threshold, from none flagged to all."""
    scored = sorted(((_harmless(score(case)), case.truth == "failed") for case in some), key=lambda pair: -pair[0])
    num_failed = sum(failed for _, failed in scored)
    num_trained = len(scored) - num_failed
    points = [(0.0, 0.0)]
    hits = alarms = 0
    for index, (level, failed) in enumerate(scored):
        hits, alarms = hits + failed, alarms + (not failed)
        if index + 1 == len(scored) or scored[index + 1][0] != level:
            points.append((alarms / max(1, num_trained), hits / max(1, num_failed)))
    return points


def area(points: Sequence[tuple[float, float]]) -> float:
    """Return the area under a curve, by the trapezoidal rule."""
    return sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in pairwise(points))


def _harmless(score: float) -> float:
    return -math.inf if math.isnan(score) else score
