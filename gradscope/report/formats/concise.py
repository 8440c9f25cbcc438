"""`concise`: one line per finding, as compilers print them, and one line per target."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.gate.outcome import Outcome
from gradscope.report.formats.summary import counted
from gradscope.report.names import shown_module, visible
from gradscope.rules.finding import Finding


def concise(outcomes: Sequence[Outcome]) -> str:
    """Render `file:line: CODE severity module: message` lines."""
    lines = []
    for outcome in outcomes:
        lines += [_line(outcome, finding) for finding in outcome.diagnosis.findings]
        lines.append(f"{visible(outcome.name)}: {outcome.diagnosis.verdict}, {counted(outcome)}")
    return "\n".join(lines) + "\n" if lines else ""


def _line(outcome: Outcome, finding: Finding) -> str:
    place = finding.file or outcome.recording.provenance.target
    line = f":{finding.line}" if finding.file and finding.line else ""
    where = shown_module(finding.module, finding.call)
    return f"{visible(place)}{line}: {finding.code} {finding.severity} {where}: {visible(finding.message)}"
