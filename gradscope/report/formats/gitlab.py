"""`gitlab`: GitLab's code-quality report, a JSON array in the subset of the Code Climate format that GitLab reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gradscope.gate.outcome import Outcome
from gradscope.report.formats.fingerprint import Occurrences
from gradscope.report.formats.location import source_path
from gradscope.report.names import shown_module, visible
from gradscope.rules.finding import Finding, Severity

_SEVERITIES: dict[Severity, str] = {"error": "critical", "warning": "minor", "info": "info"}


def gitlab(outcomes: Sequence[Outcome]) -> str:
    """Render every finding with a unique fingerprint; a location is required, so the target's file stands in."""
    occurrences = Occurrences()
    issues = [_issue(outcome, finding, occurrences) for outcome in outcomes for finding in outcome.diagnosis.findings]
    return json.dumps(issues, indent=2) + "\n"


def _issue(outcome: Outcome, finding: Finding, occurrences: Occurrences) -> dict[str, Any]:
    where = shown_module(finding.module, finding.call)
    target = outcome.recording.provenance.target
    return {
        "description": f"{finding.code} {where}: {visible(finding.message)}",
        "check_name": finding.code,
        "fingerprint": occurrences.fingerprint(target, finding),
        "severity": _SEVERITIES[finding.severity],
        "location": {"path": source_path(outcome, finding), "lines": {"begin": finding.line or 1}},
    }
