"""Tried remedies in the terminal and in Markdown: before and after, the best first, and what to do."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from gradscope.cli.experiment_page import draw_table, table_markdown
from gradscope.experiments.result import Cell, Table, table
from gradscope.remedy import Suggestions, Trial
from gradscope.remedy.suggestions import SHOWN_METRICS, Measured
from gradscope.report.glyphs import glyphs_for
from gradscope.report.inert import as_code, inert
from gradscope.report.names import visible
from gradscope.report.numbers import brief
from gradscope.report.terminal.layout import INDENT, draw_note, draw_title
from gradscope.report.terminal.verdict import VERDICT_WORDS

MOST_SHOWN = 3
"""Helpful remedies that are explained."""

_HEADINGS = ("remedy", "verdict", "D", "Jacobian spread", "token cosine", "loss, first to last", "findings")


def draw_suggestions(found: Suggestions, console: Console) -> None:
    """Print the result."""
    glyphs = glyphs_for(console.encoding)
    console.print(Text(visible(found.target), style="bold", overflow="fold"))
    draw_table(_table(found, short=True), console, glyphs)
    draw_title(console, "What to do")
    console.print(Padding(Text(visible(_answer(found)), overflow="fold"), (0, 0, 0, INDENT)))
    for trial in found.helpful[:MOST_SHOWN]:
        console.print()
        line = Text(f"{glyphs.good} {trial.remedy.name}", style="green")
        line.append(f"  {trial.remedy.title}", style="default").append(f"  {_where(trial)}", style="dim")
        console.print(Padding(line, (0, 0, 0, INDENT)))
        for text in (trial.remedy.how, trial.remedy.source):
            if text:
                console.print(Padding(Text(text, style="dim", overflow="fold"), (0, 0, 0, INDENT + 2)))
    console.print()
    for note in _notes(found):
        draw_note(console, visible(note))


def suggestions_markdown(found: Suggestions) -> str:
    """Return the result as Markdown."""
    steps = [f"- **{trial.remedy.name}**: {trial.remedy.title}: `{trial.remedy.how}`" for trial in found.helpful]
    notes = [f"- {inert(note)}" for note in _notes(found)]
    heading = f"## {as_code(found.target)}"
    return "\n".join([heading, "", table_markdown(_table(found)), inert(_answer(found)), "", *steps, *notes, ""])


def _answer(found: Suggestions) -> str:
    """Say in a sentence whether anything helped."""
    if not any(found.before.standing):
        return "Nothing needs mending: it will train as it is."
    if not found.helpful:
        return "None of the remedies that were tried helped." + _advice(found)
    best = found.helpful[0]
    assert best.after is not None
    verdict = VERDICT_WORDS[best.after.diagnosis.verdict].lower()
    others = len(found.helpful) - 1
    more = f", and {others} more {'helps' if others == 1 else 'help'}" if others else ""
    return f"Of what was tried, {best.remedy.title} does most: {verdict}{more}."


def _advice(found: Suggestions) -> str:
    """Return what the worst finding itself advises."""
    findings = found.before.diagnosis.findings
    return f" {findings[0].code} advises: {findings[0].advice}" if findings and findings[0].advice else ""


def _where(trial: Trial) -> str:
    return f"tried in {trial.num_places} places" if trial.num_places > 1 else "tried"


def _table(found: Suggestions, *, short: bool = False) -> Table:
    """Set before and after side by side; the short form leaves the findings out, for which a terminal has no room."""
    rows = [_row("as it is", found.before)]
    rows += [_row(trial.remedy.name, trial.after) for trial in found.trials]
    shown = len(_HEADINGS) - short
    note = "The best first. D: decades gained from the loss to the input, at the first step."
    return table("What was tried", _HEADINGS[:shown], [row[:shown] for row in rows], note)


def _row(name: str, measured: Measured | None) -> list[Cell]:
    if measured is None:
        return [name, "not measured", *[None] * (len(_HEADINGS) - 2)]
    metrics = measured.diagnosis.metrics
    numbers = [None if metrics.get(key) is None else float(metrics[key] or 0.0) for key in SHOWN_METRICS]
    verdict = VERDICT_WORDS[measured.diagnosis.verdict].lower()
    losses = " to ".join(brief(loss) for loss in measured.losses)
    return [name, verdict, *numbers, losses, " ".join(measured.codes) or None]


def _notes(found: Suggestions) -> list[str]:
    notes = [f"{trial.remedy.name} could not be run: {trial.error}" for trial in found.trials if trial.error]
    reasons: dict[str, list[str]] = {}
    for name, why in found.not_tried:
        reasons.setdefault(why, []).append(name)
    notes += [f"Not tried, since {why}: {', '.join(names)}." for why, names in reasons.items()]
    if found.partial:
        notes.append("Interrupted: the rest was not tried.")
    return [*notes, "All on the same batches and seed, by the same rules; train longer before you trust it."]
