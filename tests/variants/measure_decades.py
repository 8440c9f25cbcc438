"""Measure D of every token model at 10, 24 and 48 blocks beside the reference table.

Run as ``python -m tests.variants.measure_decades``, with the names of variants to measure only those. All of them
with the default of three seeds take about ten minutes on one core.
"""

from __future__ import annotations

import argparse
import math
import statistics

from gradscope import variants
from gradscope.variants import VARIANTS
from gradscope.variants.expected import EXPECTED_DEPTHS
from tests.variants.gradients import end_gradients


def decades_or_nan(name: str, seed: int, layers: int, init: str) -> float:
    """D, or nan where a gradient is zero or not finite."""
    subject = variants.subject(name, {"layers": layers, "init": init}, seed)
    start, end = (float(gradient.double().norm()) for gradient in end_gradients(subject))
    return math.log10(start / end) if start and end and math.isfinite(start) and math.isfinite(end) else math.nan


def _cell(values: list[float], reference: float | None) -> str:
    known = "" if reference is None else f" ({reference:+.2f})"
    if not all(math.isfinite(value) for value in values) or len(values) < 2:
        return f"{values[0]:+8.2f}{known}"
    return f"{statistics.fmean(values):+8.2f} ±{statistics.stdev(values):.2f}{known}"


def main() -> None:
    """Print one line per variant and scheme."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    print(f"{'variant':26} {'init':8} " + " ".join(f"{f'L={depth}':>24}" for depth in EXPECTED_DEPTHS))
    for variant in VARIANTS:
        if variant.family != "transformer" or (options.names and variant.name not in options.names):
            continue
        for init in ("pytorch", "xavier"):
            expected = variant.expected_decades.get(init, (None, None, None))
            cells = []
            for depth, reference in zip(EXPECTED_DEPTHS, expected, strict=True):
                values = [decades_or_nan(variant.name, seed, depth, init) for seed in range(options.seeds)]
                cells.append(_cell(values, reference))
            print(f"{variant.name:26} {init:8} " + " ".join(f"{cell:>24}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
