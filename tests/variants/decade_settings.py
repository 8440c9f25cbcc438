"""How far D of two deep wirings moves with what is not the wiring: activation, positions, sequence length, batch."""

from __future__ import annotations

import statistics
from typing import Any

from gradscope.variants.expected import EXPECTED_DEPTHS
from tests.variants.gradients import decades

WIRINGS = ("output-norm", "post-ln")
SETTINGS: tuple[dict[str, Any], ...] = (
    {"tokens": 32, "batch": 16},
    {"tokens": 16, "batch": 32},
    {"tokens": 16, "batch": 8},
    {"tokens": 16, "batch": 32, "position_std": 1.0},
    {"tokens": 16, "batch": 32, "activation": "relu"},
    {"tokens": 16, "batch": 32, "activation": "relu", "position_std": 1.0},
)
SEEDS = 4

EXPLANATION = """\
The ranges are a fifth of the expected value and a spread for what the reference's setting leaves open. Two deep wirings
depend on that setting far more than the others, so their reference values at 48 blocks (output-norm +5.99, post-ln
-0.09) are one setting's: with Xavier weights, mean ± standard deviation over four seeds,"""

CONCLUSION = """\
Longer sequences, or positions as strong as tokens, bring output-norm to its reference value. Post-LN's D stays below
half a decade in every setting and changes sign between them: it says nothing about these networks, whose tokens have
collapsed. The gradient of `no-residual-no-norm` at 48 blocks is zero in float32; it was measured in float64."""


def settings_lines() -> list[str]:
    """Measure and return the section in Markdown."""
    headings = [f"{blocks} blocks" for blocks in EXPECTED_DEPTHS]
    lines = [EXPLANATION, "", f"| wiring | setting | {' | '.join(headings)} |", "|---|---|--:|--:|--:|"]
    for name in WIRINGS:
        for setting in SETTINGS:
            numbers = [_measured(name, blocks, setting) for blocks in EXPECTED_DEPTHS]
            words = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in setting.items())
            lines.append(f"| {name} | {words} | {' | '.join(numbers)} |")
    return [*lines, "", CONCLUSION]


def _measured(name: str, blocks: int, setting: dict[str, Any]) -> str:
    values = [decades(name, seed, layers=blocks, init="xavier", **setting) for seed in range(SEEDS)]
    return f"{statistics.fmean(values):+.2f} ± {statistics.stdev(values):.2f}"
