"""A sweep in the terminal and in Markdown: the table, a chart of the gradient over depth, and what the laws say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from gradscope.cli.experiment_page import draw_table, table_markdown
from gradscope.experiments.sweep import SweepResult
from gradscope.experiments.sweep_laws import LawReport, Row
from gradscope.experiments.sweep_table import sweep_table
from gradscope.report.glyphs import Glyphs, glyphs_for
from gradscope.report.inert import inert
from gradscope.report.names import fit, visible
from gradscope.report.numbers import decades
from gradscope.report.terminal.layout import INDENT, draw_note, draw_title

MIN_SPAN = 1.0
"""Decades that fill half of the chart at least, so that a flat sweep looks flat."""


def draw_sweep(result: SweepResult, console: Console) -> None:
    """Print the result."""
    glyphs = glyphs_for(console.encoding)
    axes = ", ".join(f"{name} {', '.join(map(str, values))}" for name, values in result.axes.items())
    heading = Text(visible(result.target), style="bold", overflow="fold")
    console.print(heading.append(f"  {visible(axes)}", style="not bold dim"))
    draw_table(sweep_table(result.rows, list(result.axes)), console, glyphs)
    _draw_chart(result, console, glyphs)
    if result.laws:
        draw_title(console, "With depth")
    for law in result.laws:
        line = Text(visible(_choice(law)), style="bold")
        console.print(Padding(line.append(visible(law.sentence), style="not bold"), (0, 0, 0, INDENT)))
    for note in result.notes:
        console.print()
        draw_note(console, visible(note))


def sweep_markdown(result: SweepResult) -> str:
    """Return the table, what the laws say and the notes as Markdown."""
    laws = [f"- {inert(_choice(law))}{law.sentence}" for law in result.laws]
    notes = [f"- {inert(note)}" for note in result.notes]
    return "\n".join([table_markdown(sweep_table(result.rows, list(result.axes))), *laws, *notes, ""])


def _choice(law: LawReport) -> str:
    """Return the other arguments that a law holds for, with a colon; "" where depth alone was swept."""
    others = ", ".join(f"{name}={value}" for name, value in law.others.items())
    return f"{others}: " if others else ""


def _draw_chart(result: SweepResult, console: Console, glyphs: Glyphs) -> None:
    """Draw each choice's mean decades as a bar to the left (lost) or to the right (gained) of zero."""
    means = _means(result.rows, list(result.axes))
    if not means:
        return
    draw_title(console, "Gradient, start over end", "decades, mean over seeds; to the left lost, to the right gained")
    name_cells = min(max(map(len, means)), console.width // 3)
    half = max(4, (console.width - INDENT - name_cells - 12) // 2)
    span = max(MIN_SPAN, *map(abs, means.values()))
    for name, value in means.items():
        bar = glyphs.eighths[-1] * round(abs(value) / span * half)
        left, right = (f"{bar:>{half}}", " " * half) if value < 0 else (" " * half, f"{bar:<{half}}")
        line = Text(" " * INDENT + f"{fit(name, name_cells, glyphs.ellipsis):<{name_cells}} {decades(value):>7}  ")
        line.append(left, style="blue").append(glyphs.mark, style="dim").append(right, style="blue")
        console.print(line, no_wrap=True, overflow="crop")


def _means(rows: Sequence[Row], axes: Sequence[str]) -> dict[str, float]:
    """Return the mean decades of each choice of arguments that has a finite number, by its name."""
    found: dict[str, list[float]] = {}
    for row in rows:
        value = row.metrics.get("decades")
        if value is not None and math.isfinite(value):
            found.setdefault(_name(row, axes), []).append(float(value))
    return {name: fmean(values) for name, values in found.items()}


def _name(row: Row, axes: Sequence[str]) -> str:
    return visible(" ".join(f"{axis}={row.arguments.get(axis)}" for axis in axes))
