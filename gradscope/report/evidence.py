"""The evidence of a finding as one line of text."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gradscope.report.glyphs import Glyphs
from gradscope.report.names import visible
from gradscope.report.numbers import brief, count, decades
from gradscope.rules.finding import Value


def described_evidence(evidence: Mapping[str, Value], glyphs: Glyphs) -> str:
    """Join the numbers as "name value", names in words, in the order the rule gave them."""
    return f" {glyphs.dot} ".join(
        f"{visible(name).replace('_', ' ')} {evidence_value(name, value)}" for name, value in evidence.items()
    )


def evidence_value(name: str, value: Value) -> str:
    """Format one number of the evidence by what its name says it is."""
    if value is None:
        return "not measured"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return count(value) if abs(value) >= 10_000 else str(value)  # noqa: PLR2004
    if isinstance(value, float) and math.isfinite(value) and "cosine" in name:
        return f"{value:.3f}"
    if isinstance(value, float):
        return decades(value) if "decades" in name or "log10" in name else brief(value)
    return visible(value)
