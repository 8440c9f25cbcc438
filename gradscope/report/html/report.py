"""The report of one model: a recording and its diagnosis as one self-contained HTML file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from markupsafe import Markup

from gradscope.metrics.facts import Facts
from gradscope.record import Provenance, Recording, write_atomically
from gradscope.report.html.document import render
from gradscope.report.html.explanation import explanation, rule_name
from gradscope.report.html.panel import Column, Panel, Table
from gradscope.report.html.payload import embed
from gradscope.report.html.sharing import shareable, shared
from gradscope.report.html.views.modules import COLUMNS, module_table
from gradscope.report.html.views.panels import model_panels, panel_of
from gradscope.report.html.views.places import shown_name, station_of
from gradscope.report.html.views.verdict import (
    VERDICTS,
    evidence_value,
    gravest,
    headline_facts,
    no_fault_answers,
    place_in_words,
)
from gradscope.report.html.wording import number
from gradscope.rules.finding import Diagnosis, Finding

MAX_FINDINGS = 60
"""Findings shown in full; beyond this nobody reads on, and the gravest come first."""
MAX_CONFESSIONS = 60
MAX_EVENTS = 40
SEVERITIES = {"error": ("Error", "bad"), "warning": ("Warning", "warn"), "info": ("Note", "unsure")}


@dataclass(frozen=True)
class ShownFinding:
    """A finding with everything its card links to."""

    finding: Finding
    number: int
    severity: str
    style: str
    name: str
    row: int | None
    where: str
    panel: Panel | None
    evidence: list[tuple[str, str]]
    explanation: list[tuple[str, Markup]]


def write(
    recording: Recording, diagnosis: Diagnosis, path: str | os.PathLike[str], *, title: str | None = None
) -> None:
    """Write the report of one model.

    Args:
        recording: What was measured.
        diagnosis: How it was judged.
        path: The HTML file to write, in full or not at all.
        title: Title of the page; by default the target's name.

    Raises:
        RecordError: The file cannot be written.
    """
    write_atomically(Path(path), html(recording, diagnosis, title=title).encode())


def html(recording: Recording, diagnosis: Diagnosis, *, title: str | None = None) -> str:
    """Return the report as one HTML document; the same recording gives the same document."""
    recording, diagnosis = shareable(recording), _shareable(diagnosis)
    facts = Facts(recording)
    panels = model_panels(facts, diagnosis)
    modules = module_table(facts, [finding.module for finding in diagnosis.findings])
    findings = _shown_findings(facts, diagnosis, panels, modules.row_of)
    main = gravest(diagnosis)
    words, style = VERDICTS[diagnosis.verdict]
    context = {
        "title": shared(title) if title else f"{recording.provenance.target}: {words.lower()} (gradscope)",
        "verdict": {"words": words, "style": style, "reason": diagnosis.reason},
        "main": next((item for item in findings if item.finding is main), None),
        "answers": no_fault_answers(facts, diagnosis),
        "facts": headline_facts(facts, diagnosis),
        "findings": findings,
        "more_findings": len(diagnosis.findings) - len(findings),
        "modules": modules,
        "module_columns": [Column(name, kind) for name, kind in COLUMNS],
        "first_step": facts.steps[0] if facts.steps else 0,
        "confessions": [(str(row["what"]), str(row["why"])) for row in recording.rows("confessions")],
        "max_confessions": MAX_CONFESSIONS,
        "events": event_table(facts),
        "provenance": provenance_rows(recording.provenance, facts.steps),
        "run": recording.provenance,
    }
    return render(
        "report.html.jinja",
        context,
        panels,
        table=modules.payload() if modules.rows else None,
        recording=embed(recording),
    )


def _shareable(diagnosis: Diagnosis) -> Diagnosis:
    findings = tuple(
        replace(
            finding,
            module=shared(finding.module),
            message=shared(finding.message),
            advice=shared(finding.advice),
            file=None if finding.file is None else shared(finding.file),
            evidence={
                shared(key): shared(value) if isinstance(value, str) else value
                for key, value in finding.evidence.items()
            },
        )
        for finding in diagnosis.findings
    )
    return replace(diagnosis, reason=shared(diagnosis.reason), findings=findings)


def _shown_findings(
    facts: Facts, diagnosis: Diagnosis, panels: list[Panel], row_of: dict[str, int]
) -> list[ShownFinding]:
    shown = []
    stations = facts.profile.stations if facts.profile else ()
    explained: set[str] = set()
    for place, finding in enumerate(diagnosis.findings[:MAX_FINDINGS], start=1):
        words, style = SEVERITIES[finding.severity]
        panel = panel_of(finding.code, panels)
        station = station_of(finding.module, finding.call, stations)
        shown.append(
            ShownFinding(
                finding,
                place,
                words,
                style,
                rule_name(finding.code),
                row_of.get(finding.module) if finding.module else None,
                place_in_words(finding, facts, station, len(stations)),
                panel,
                [(key.replace("_", " "), evidence_value(value)) for key, value in finding.evidence.items()],
                explanation(finding.code) if finding.code not in explained else [],
            )
        )
        explained.add(finding.code)
    return shown


def event_table(facts: Facts) -> Table | None:
    """List what happened at a place while watching: recomputation, cuts, first non-finite numbers; None if nothing."""
    if not facts.events:
        return None
    columns = (
        Column("step", "number"),
        Column("what"),
        Column("where", "place"),
        Column("op"),
        Column("source"),
        Column("detail", "prose"),
    )
    rows = [
        (
            event.step,
            event.kind.replace("_", " "),
            shown_name(event.module),
            event.op or "",
            f"{event.file}:{event.line}" if event.file else "",
            event.detail or "",
        )
        for event in facts.events[:MAX_EVENTS]
    ]
    more = f" (the first {MAX_EVENTS} of {len(facts.events)})" if len(facts.events) > MAX_EVENTS else ""
    return Table(f"What happened while watching{more}", columns, rows)


def provenance_rows(run: Provenance, steps: Sequence[int]) -> list[tuple[str, str, bool]]:
    """List where the recording comes from: (what, value, whether gradscope made it up); what is unknown is left out."""
    training = f"{run.optimizer}, learning rate {number(run.lr)}" if run.optimizer else "no optimizer step"
    watched = ", ".join(map(str, steps[:12])) + (f", … {steps[-1]}" if len(steps) > 12 else "")  # noqa: PLR2004
    rows = [
        ("Target", run.target, False),
        ("Arguments", ", ".join(f"{name}={value}" for name, value in run.arguments.items()), False),
        ("Loaded", " ".join(run.notes), False),
        ("Inputs", run.inputs, run.inputs_synthetic),
        ("Batch", run.batch_shape, False),
        ("Loss", run.loss, run.loss_synthetic),
        ("Parameters", number(run.num_parameters) if run.num_parameters else "", False),
        ("Seed", "not set" if run.seed is None else str(run.seed), False),
        ("Device and dtype", f"{run.device}, {run.dtype}, {run.mode} mode", False),
        ("Training", f"{run.num_steps} steps of {training}" if run.optimizer else training, False),
        ("Watched steps", watched, False),
        (
            "Versions",
            ", ".join(
                f"{name} {version}"
                for name, version in (("gradscope", run.gradscope), ("torch", run.torch), ("Python", run.python))
                if version
            ),
            False,
        ),
        ("Git commit", run.git_commit or "", False),
    ]
    return [row for row in rows if row[1]]
