"""The findings of one outcome counted in words, as several formats end with."""

from __future__ import annotations

from collections import Counter

from gradscope.gate.outcome import Outcome
from gradscope.report.numbers import plural


def counted(outcome: Outcome) -> str:
    """Return "2 errors, 1 warning (3 known, 1 ignored)"."""
    severities = Counter(finding.severity for finding in outcome.diagnosis.findings)
    parts = [plural(severities[severity], severity) for severity in ("error", "warning") if severities[severity]]
    if severities["info"]:
        parts.append(plural(severities["info"], "remark"))
    set_aside = ((len(outcome.known), "known"), (len(outcome.ignored), "ignored"))
    aside = [f"{number} {word}" for number, word in set_aside if number]
    return (", ".join(parts) or "no findings") + (f" ({', '.join(aside)})" if aside else "")
