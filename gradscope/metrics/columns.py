"""Columns of the measured tables, grouped by step: the one pass over a recording that every metric shares."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median
from typing import Any

from gradscope.record import Recording

Rows = dict[int, dict[Any, Any]]
"""step -> key -> value."""


def by_step(recording: Recording, table: str, key: str, column: str) -> Rows:
    """Group one column of a measured table as step -> key -> value; of repeated rows the last one counts."""
    columns = recording.tables[table]
    grouped: Rows = {}
    for step, item, value in zip(columns["step"], columns[key], columns[column], strict=True):
        grouped.setdefault(step, {})[item] = value
    return grouped


def is_positive(value: float | None) -> bool:
    """Whether a norm was measured, is finite and above zero."""
    return value is not None and 0.0 < value < math.inf


def log10_ratio(over: float | None, under: float | None) -> float | None:
    """Return log10(over / under) of two norms; None unless both are finite and above zero."""
    if over is None or under is None or not is_positive(over) or not is_positive(under):
        return None
    return math.log10(over) - math.log10(under)


def ratio(over: float | None, under: float | None) -> float | None:
    """Return over / under of two norms; None where either is unknown or non-finite, or the lower one is zero."""
    if over is None or under is None or not math.isfinite(over) or not is_positive(under):
        return None
    return over / under


def middle(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are known; None where none is."""
    known = [value for value in values if value is not None]
    return median(known) if known else None
