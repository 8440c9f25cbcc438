"""The words for the headline numbers of a diagnosis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gradscope.report.names import visible
from gradscope.report.numbers import brief, count, decades


@dataclass(frozen=True)
class Measure:
    """One headline number, ready to print."""

    label: str
    value: str
    meaning: str


_WORDS: dict[str, tuple[str, str]] = {
    "decades": ("end to end", "decades gained from loss to input; negative: lost"),
    "decades_per_block": ("per block", "decades, on average"),
    "excess_decades": ("unexplained", "decades beyond what a growing stream explains"),
    "jacobian_anisotropy": ("Jacobian spread", "1: every direction passes alike; 40: hardly any does"),
    "token_cosine": ("token similarity", "cosine between tokens at the end; 1: all alike"),
    "sample_cosine": ("sample similarity", "cosine between samples at the end; 1: all alike"),
    "effective_path_length": ("effective depth", "branches an average gradient path takes"),
}
_ALIKE_DECADES = 0.05
"""Excess this close to the whole (decades) says nothing new: the stream does not grow."""

_DECADES = frozenset({"decades", "decades_per_block", "excess_decades"})


def described_measures(metrics: Mapping[str, float | int | None]) -> list[Measure]:
    """Return the measured ones of the numbers this view has words for, in a fixed order."""
    return [
        Measure(label, _value(name, metrics[name]), meaning + interval_words(metrics, name))
        for name, (label, meaning) in _WORDS.items()
        if metrics.get(name) is not None and not (name == "excess_decades" and _says_nothing_new(metrics))
    ]


def interval_words(metrics: Mapping[str, float | int | None], name: str) -> str:
    """Return the interval of a number in words, with what it is over; "" where it has none."""
    low, high, seeds = metrics.get(f"{name}_low"), metrics.get(f"{name}_high"), metrics.get("num_seeds")
    if low is None or high is None:
        return ""
    return f"; 95 %: {decades(low)} to {decades(high)} over {f'{seeds} seeds' if seeds else 'blocks'}"


def _says_nothing_new(metrics: Mapping[str, float | int | None]) -> bool:
    whole, excess = metrics.get("decades"), metrics.get("excess_decades")
    return whole is not None and excess is not None and abs(whole - excess) < _ALIKE_DECADES


def measure_words(name: str) -> tuple[str, str]:
    """Return the label of a headline number and what it means; its own name where this view has no words for it."""
    return _WORDS.get(name, (visible(name.replace("_", " ")), ""))


def _value(name: str, value: float | int | None) -> str:
    if name in _DECADES or name.endswith("_decades"):
        return decades(value)
    if name.endswith("cosine") and value is not None and math.isfinite(value):
        return f"{value:.3f}"
    if isinstance(value, int):
        return count(value)
    return brief(value)
