"""How near a run is to changing sides: judged again with every limit moved a little either way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gradscope.record import Recording
from gradscope.rules.finding import Diagnosis
from gradscope.rules.registry import levels_of
from gradscope.rules.verdict import diagnose

MARGIN = 0.1
"""How far limits are moved (fraction of the limit): about what another seed moves the measured numbers by."""

_BOUNDED = ("cosine", "fraction")
"""Limits on numbers that end at 1: it is their distance from 1 that is moved."""

_COUNTS = ("blocks", "attentions", "spreads")
"""Limits on what no seed changes."""


@dataclass(frozen=True)
class Margin:
    """Codes of errors that a small change would add or take away."""

    almost: tuple[str, ...]
    barely: tuple[str, ...]

    @property
    def codes(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.barely, *self.almost)


def margin(recording: Recording, diagnosis: Diagnosis, thresholds: Mapping[str, float]) -> Margin:
    """Return what would become an error, and which errors would not be one, with limits moved by MARGIN.

    Args:
        recording: The run.
        diagnosis: What the rules say with the limits as they are.
        thresholds: Overridden limits.
    """
    in_force = {f"{code}.{name}": value for code, own in levels_of(thresholds).items() for name, value in own.items()}
    now = _errors(diagnosis)
    moved = [
        _errors(diagnose(recording, {key: _moved(key, value, by) for key, value in in_force.items()}))
        for by in (-MARGIN, MARGIN)
    ]
    almost, always = moved[0] | moved[1], moved[0] & moved[1]
    return Margin(tuple(sorted(almost - now)), tuple(sorted(now - always)))


def _errors(diagnosis: Diagnosis) -> frozenset[str]:
    return frozenset(finding.code for finding in diagnosis.findings if finding.severity == "error")


def _moved(key: str, value: float, by: float) -> float:
    if key.endswith(_COUNTS):
        return value
    if any(word in key for word in _BOUNDED) and 0.5 < value < 1:  # noqa: PLR2004  # nearer to 1 than to 0
        return 1 - (1 - value) * (1 - by)
    return value * (1 + by)
