"""How far a number spreads over steps (or seeds): the median and the range that holds nine in ten."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LOW, MIDDLE, HIGH = 0.05, 0.5, 0.95
"""Shown quantiles (fractions): the median and the range between the 5 % and the 95 % quantile."""


@dataclass(frozen=True)
class Spread:
    """Quantiles at one place: `low` (5 %), `median` and `high` (95 %), in the unit of the values."""

    low: float
    median: float
    high: float


def spread(values: Iterable[float | None]) -> Spread | None:
    """Return the quantiles of the values that are known; None where none is.

    Example:
        >>> spread([1.0, None, 3.0])
        Spread(low=1.1, median=2.0, high=2.9)
    """
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return Spread(quantile(known, LOW), quantile(known, MIDDLE), quantile(known, HIGH))


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of ascending values, linear between neighbours (Hyndman & Fan 1996, type 7)."""
    place = share * (len(ordered) - 1)
    lower = int(place)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (place - lower) * (ordered[upper] - ordered[lower])
