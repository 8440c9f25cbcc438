"""What narrow number formats would lose of the gradients, and the loss scale that keeps it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FORMAT_FLOOR_LOG2 = {"float16": -25, "float8_e5m2": -17, "float8_e4m3": -10, "bfloat16": -134}
"""log2 of the magnitude below which a gradient rounds to zero: half the smallest subnormal of each format."""

FLOAT16_MAX = 65504.0
"""Largest finite float16."""

SCALED_MAX_LOG2 = 15
"""A loss scale of 2^k keeps max|g| * 2^k below 2^15 (absolute): one bit below float16's largest (Micikevicius 2018)."""

LARGEST_SCALE_LOG2 = 24
"""Largest loss scale worth naming, as a power of two: torch's GradScaler starts at 2^16 and seldom passes 2^24."""


@dataclass(frozen=True)
class Magnitudes:
    """How many elements of one gradient lie in each octave: counts[i] have floor(log2|g|) == first_log2 + i."""

    name: str
    kind: str
    first_log2: int
    counts: tuple[int, ...]
    zeros: int
    nonfinite: int

    @property
    def num_nonzero(self) -> int:
        """Elements that are finite and not zero."""
        return sum(self.counts)

    def fraction_below(self, floor_log2: float) -> float | None:
        """Fraction of the non-zero elements in octaves wholly below 2**floor_log2."""
        if not self.num_nonzero:
            return None
        return sum(self.counts[: max(math.ceil(floor_log2) - self.first_log2, 0)]) / self.num_nonzero

    @property
    def max_log2(self) -> int | None:
        """Octave of the largest element."""
        last = next((i for i in range(len(self.counts) - 1, -1, -1) if self.counts[i]), None)
        return None if last is None else self.first_log2 + last


def recommended_loss_scale_log2(max_log2: float | None) -> int | None:
    """Return k of the loss scale 2^k that brings the largest gradient element just below 2^15."""
    if max_log2 is None or not math.isfinite(max_log2):
        return None
    return min(SCALED_MAX_LOG2 - 1 - math.floor(max_log2), LARGEST_SCALE_LOG2)


def fraction_below(magnitudes: Iterable[Magnitudes], floor_log2: float) -> float | None:
    """Return the fraction of all non-zero gradient elements that lie below 2**floor_log2."""
    lost, total = 0.0, 0
    for item in magnitudes:
        share = item.fraction_below(floor_log2)
        if share is not None:
            lost += share * item.num_nonzero
            total += item.num_nonzero
    return lost / total if total else None


def largest_log2(magnitudes: Sequence[Magnitudes]) -> int | None:
    """Return the octave of the largest gradient element of all."""
    known = [item.max_log2 for item in magnitudes if item.max_log2 is not None]
    return max(known) if known else None
