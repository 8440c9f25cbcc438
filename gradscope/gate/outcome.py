"""The result of judging one run as a gate, and the exit code of several."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from gradscope.config import nearest
from gradscope.errors import EXIT_CLEAN, EXIT_FINDINGS, ConfigError
from gradscope.gate.baseline import Known, known
from gradscope.gate.selection import Selection
from gradscope.record import Recording
from gradscope.rules.finding import Diagnosis, Finding

FailOn = Literal["error", "warning", "never"]

_FAILING: dict[FailOn, frozenset[str]] = {
    "error": frozenset({"error"}),
    "warning": frozenset({"error", "warning"}),
    "never": frozenset(),
}


def fail_level(text: str) -> FailOn:
    """Return the level if it is one.

    Raises:
        ConfigError: It is not; the nearest is named.
    """
    for level in _FAILING:
        if level == text:
            return level
    raise ConfigError(
        f"fail-on '{text}' is not known.", rule=f"It is one of {', '.join(_FAILING)}. {nearest(text, _FAILING)}".strip()
    )


@dataclass(frozen=True)
class Outcome:
    """One run judged.

    Attributes:
        name: What the user called the target: its declared name, target string or recording file.
        recording: What was measured.
        diagnosis: What the rules say, with only the findings that count.
        known: Findings set aside because the baseline has them.
        ignored: Findings set aside by the selection.
        failing: The findings that fail the gate.
    """

    name: str
    recording: Recording
    diagnosis: Diagnosis
    known: tuple[Finding, ...] = ()
    ignored: tuple[Finding, ...] = ()
    failing: tuple[Finding, ...] = ()


def judge(
    name: str,
    recording: Recording,
    diagnosis: Diagnosis,
    *,
    selection: Selection,
    fail_on: FailOn,
    baseline: frozenset[Known] = frozenset(),
) -> Outcome:
    """Sort the findings into those that count, those known before and those ignored."""
    selected = [finding for finding in diagnosis.findings if selection.keeps(finding)]
    target = recording.provenance.target
    fresh = tuple(finding for finding in selected if known(target, finding) not in baseline)
    return Outcome(
        name=name,
        recording=recording,
        diagnosis=replace(diagnosis, findings=fresh),
        known=tuple(finding for finding in selected if known(target, finding) in baseline),
        ignored=tuple(finding for finding in diagnosis.findings if not selection.keeps(finding)),
        failing=tuple(finding for finding in fresh if finding.severity in _FAILING[fail_on]),
    )


def exit_code(outcomes: Iterable[Outcome]) -> int:
    """Return 1 where any run has a finding that fails the gate, else 0."""
    return EXIT_FINDINGS if any(outcome.failing for outcome in outcomes) else EXIT_CLEAN
