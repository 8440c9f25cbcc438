"""`markdown`: a summary for a pull request or a job page; every user string is inert."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradscope.gate.outcome import Outcome
from gradscope.report.formats.summary import counted
from gradscope.report.inert import as_code, inert
from gradscope.report.measures import described_measures
from gradscope.report.names import shown_module
from gradscope.rules.finding import Finding, Severity, Verdict

MAX_ROWS = 50
"""Findings in the table of one target; a job summary may hold 1 MiB, a reader far less."""

_VERDICTS: dict[Verdict, str] = {
    "will-train": "✅ will train",
    "at-risk": "⚠️ at risk",
    "will-not-train": "❌ will not train",
    "cannot-say": "❔ cannot say",
}
_SIGNS: dict[Severity, str] = {"error": "❌", "warning": "⚠️", "info": "ℹ️"}


def markdown(outcomes: Sequence[Outcome]) -> str:
    """Render one section per target."""
    return "\n".join(line for outcome in outcomes for line in _section(outcome)) + "\n"


def _section(outcome: Outcome) -> Iterator[str]:
    diagnosis = outcome.diagnosis
    yield f"### gradscope: {as_code(outcome.name)} {_VERDICTS[diagnosis.verdict]}"
    yield ""
    yield f"{inert(diagnosis.reason)} {inert(counted(outcome).capitalize())}."
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
        yield " · ".join(f"{inert(measure.label)} **{inert(measure.value)}**" for measure in measures)
        yield ""
    provenance = outcome.recording.provenance
    origins = (("inputs", provenance.inputs_synthetic), ("loss", provenance.loss_synthetic))
    made_up = [name for name, synthetic in origins if synthetic]
    note = f" Made up: {' and '.join(made_up)}." if made_up else ""
    loaded = "".join(f"{inert(sentence)} " for sentence in provenance.notes)
    yield f"{loaded}Inputs: {inert(provenance.inputs)}. Loss: {inert(provenance.loss)}.{note}"
    yield ""


def _row(finding: Finding) -> str:
    source = f"{finding.file}:{finding.line}" if finding.file and finding.line else finding.file or ""
    cells = (
        _SIGNS[finding.severity],
        finding.code,
        as_code(shown_module(finding.module, finding.call)) if finding.module else "the whole model",
        as_code(source),
        inert(finding.message),
        inert(finding.advice),
    )
    return f"| {' | '.join(cells)} |"
