"""The exponent of a power law through a handful of points."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def exponent(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Fit y = c x^p by least squares in the logarithms and return p.

    >>> round(exponent([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    log_x, log_y = [math.log(x) for x in xs], [math.log(y) for y in ys]
    mean_x, mean_y = statistics.fmean(log_x), statistics.fmean(log_y)
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in zip(log_x, log_y, strict=True))
    return covariance / sum((x - mean_x) ** 2 for x in log_x)
