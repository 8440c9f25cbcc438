"""One diagnosis from several seeds: what most of them show counts, so that a borderline value does not flap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gradscope.rules.finding import Diagnosis, Finding, Severity, Verdict

_SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")
_VERDICTS: tuple[Verdict, ...] = ("will-train", "cannot-say", "at-risk", "will-not-train")


def agreed(diagnoses: Sequence[Diagnosis]) -> Diagnosis:
    """Return the first diagnosis with the findings, severities and verdict that more than half of the seeds share.

    A severity is the highest that more than half reach; the findings are those of the first seed that reaches it.
    """
    if len(diagnoses) == 1:
        return diagnoses[0]
    needed = len(diagnoses) // 2 + 1
    reached = {code: _reached(code, diagnoses, needed) for code in _codes(diagnoses)}
    findings = [
        replace(finding, severity=min(finding.severity, level, key=_SEVERITIES.index))
        for code, level in reached.items()
        if level is not None
        for finding in _first_with(code, level, diagnoses)
    ]
    findings.sort(key=lambda finding: -_SEVERITIES.index(finding.severity))
    verdict = _verdict([diagnosis.verdict for diagnosis in diagnoses], needed)
    reason = next((d.reason for d in diagnoses if d.verdict == verdict), diagnoses[0].reason)
    return replace(diagnoses[0], verdict=verdict, reason=reason, findings=tuple(findings))


def _first_with(code: str, level: Severity, diagnoses: Sequence[Diagnosis]) -> list[Finding]:
    """Return the findings of a code from the first seed in which it reaches the level."""
    found = ([finding for finding in d.findings if finding.code == code] for d in diagnoses)
    least = _SEVERITIES.index(level)
    return next(f for f in found if any(_SEVERITIES.index(finding.severity) >= least for finding in f))


def _codes(diagnoses: Sequence[Diagnosis]) -> list[str]:
    return list(dict.fromkeys(finding.code for diagnosis in diagnoses for finding in diagnosis.findings))


def _reached(code: str, diagnoses: Sequence[Diagnosis], needed: int) -> Severity | None:
    """Return the highest severity that enough seeds reach for a code, None where too few show it at all."""
    levels = [
        max(_SEVERITIES.index(finding.severity) for finding in diagnosis.findings if finding.code == code)
        for diagnosis in diagnoses
        if any(finding.code == code for finding in diagnosis.findings)
    ]
    if len(levels) < needed:
        return None
    return _SEVERITIES[sorted(levels, reverse=True)[needed - 1]]


def _verdict(verdicts: Sequence[Verdict], needed: int) -> Verdict:
    """Return the worst verdict that enough seeds reach or exceed."""
    ranks = sorted((_VERDICTS.index(verdict) for verdict in verdicts), reverse=True)
    counts = Counter(verdicts)
    cannot_say = counts["cannot-say"] >= needed
    return "cannot-say" if cannot_say else _VERDICTS[ranks[needed - 1]]

