"""`markdown`: a summary for a pull request or a job page; every user string is inert."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gradscope.gate.outcome import Outcome
from gradscope.report.formats.summary import counted
from gradscope.report.measures import described_measures
from gradscope.report.names import fit, shown_module
from gradscope.rules.finding import Finding, Severity, Verdict

MAX_ROWS = 50
"""Findings in the table of one target; a job summary may hold 1 MiB, a reader far less."""

_MAX_CELL = 400
_VERDICTS: dict[Verdict, str] = {
    "will-train": "✅ will train",
    "at-risk": "⚠️ at risk",
    "will-not-train": "❌ will not train",
    "cannot-say": "❔ cannot say",
}
_SIGNS: dict[Severity, str] = {"error": "❌", "warning": "⚠️", "info": "ℹ️"}
_INERT = str.maketrans(
    {
        **{character: f"\\{character}" for character in "\\`*_{}[]#~$"},
        **{"<": "&lt;", ">": "&gt;", "&": "&amp;", "|": "&#124;"},
        "@": "@&#8203;",  # a zero-width space: "@name" in a module must not notify the person of that name
    }
)


def markdown(outcomes: Sequence[Outcome]) -> str:
    """Render one section per target."""
    return "\n".join(line for outcome in outcomes for line in _section(outcome)) + "\n"


def _section(outcome: Outcome) -> Iterator[str]:
    diagnosis = outcome.diagnosis
    yield f"### gradscope: {_code(outcome.name)} {_VERDICTS[diagnosis.verdict]}"
    yield ""
    yield f"{_inert(diagnosis.reason)} {_inert(counted(outcome).capitalize())}."
    yield ""
    if diagnosis.findings:
        yield "| | code | where | source | what | do |"
        yield "| --- | --- | --- | --- | --- | --- |"
        for finding in diagnosis.findings[:MAX_ROWS]:
            yield _row(finding)
        yield ""
    if len(diagnosis.findings) > MAX_ROWS:
        yield f"{len(diagnosis.findings) - MAX_ROWS} more findings are in the full report."
        yield ""
    measures = described_measures(diagnosis.metrics)
    if measures:
        yield " · ".join(f"{_inert(measure.label)} **{_inert(measure.value)}**" for measure in measures)
        yield ""
    provenance = outcome.recording.provenance
    origins = (("inputs", provenance.inputs_synthetic), ("loss", provenance.loss_synthetic))
    made_up = [name for name, synthetic in origins if synthetic]
    note = f" Made up: {' and '.join(made_up)}." if made_up else ""
    yield f"Inputs: {_inert(provenance.inputs)}. Loss: {_inert(provenance.loss)}.{note}"
    yield ""


def _row(finding: Finding) -> str:
    source = f"{finding.file}:{finding.line}" if finding.file and finding.line else finding.file or ""
    cells = (
        _SIGNS[finding.severity],
        finding.code,
        _code(shown_module(finding.module, finding.call)) if finding.module else "the whole model",
        _code(source),
        _inert(finding.message),
        _inert(finding.advice),
    )
    return f"| {' | '.join(cells)} |"


def _code(text: str) -> str:
    """Set a name as code, where nothing is a link, a mention or an emoji; the fence outgrows backticks inside."""
    shown = fit(text, _MAX_CELL).replace("|", "\\|")
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}" if shown.strip() else ""


def _inert(text: str) -> str:
    """Make running text mean itself in GitHub's and GitLab's Markdown, in and out of a table."""
    return fit(text, _MAX_CELL).translate(_INERT)
