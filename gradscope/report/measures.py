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
    "decades": ("end to end", "decades (powers of ten) the gradient gains from loss to input; negative shrinks"),
    "decades_per_block": ("per block", "decades per block, on average"),
    "excess_decades": ("beyond the law", "decades beyond what the growing stream of pre-norm explains"),
    "jacobian_anisotropy": ("Jacobian spread", "1 = all directions pass alike; above 40 hardly any gets through"),
    "token_cosine": ("token similarity", "cosine between tokens at the end of the stream; 1 = all alike"),
    "sample_cosine": ("sample similarity", "cosine between samples at the end of the stream; 1 = all alike"),
    "effective_path_length": ("effective depth", "branches an average gradient path passes through"),
}
_DECADES = frozenset({"decades", "decades_per_block", "excess_decades"})


def described_measures(metrics: Mapping[str, float | int | None]) -> list[Measure]:
    """Return the measured ones of the numbers this view has words for, in a fixed order."""
    return [
        Measure(label, _value(name, metrics[name]), meaning)
        for name, (label, meaning) in _WORDS.items()
        if metrics.get(name) is not None
    ]


def other_measures(metrics: Mapping[str, float | int | None]) -> list[Measure]:
    """Return the measured numbers without words of their own, under their names."""
    return [
        Measure(visible(name.replace("_", " ")), _value(name, value), "")
        for name, value in metrics.items()
        if name not in _WORDS and value is not None
    ]


def _value(name: str, value: float | int | None) -> str:
    if name in _DECADES or name.endswith("_decades"):
        return decades(value)
    if name.endswith("cosine") and value is not None and math.isfinite(value):
        return f"{value:.3f}"
    if isinstance(value, int):
        return count(value)
    return brief(value)
