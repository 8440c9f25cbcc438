"""A sweep in the terminal: the table, a chart of the gradient over depth, and what the laws say."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from gradscope.cli.experiment_page import draw_table
from gradscope.experiments.sweep import SweepResult
from gradscope.experiments.sweep_laws import Row
from gradscope.experiments.sweep_table import sweep_table
from gradscope.report.glyphs import Glyphs, glyphs_for
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
        others = ", ".join(f"{name}={value}" for name, value in law.others.items())
        line = Text(f"{visible(others)}: " if others else "", style="bold")
        console.print(Padding(line.append(visible(law.sentence), style="not bold"), (0, 0, 0, INDENT)))
    for note in result.notes:
        console.print()
        draw_note(console, visible(note))


def _draw_chart(result: SweepResult, console: Console, glyphs: Glyphs) -> None:
    """Draw each cell's decades as a bar to the left (lost) or to the right (gained) of zero."""
    cells = [(row, value) for row in _first_seeds(result.rows) if (value := _decades(row)) is not None]
    if not cells:
        return
    draw_title(console, "Gradient, start over end", "decades; to the left lost, to the right gained")
    names = [_name(row, list(result.axes)) for row, _ in cells]
    name_cells = min(max(map(len, names)), console.width // 3)
    half = max(4, (console.width - INDENT - name_cells - 12) // 2)
    span = max(MIN_SPAN, *(abs(value) for _, value in cells))
    for name, (_, value) in zip(names, cells, strict=True):
        length = round(abs(value) / span * half)
        bar = glyphs.eighths[-1] * length
        left, right = (f"{bar:>{half}}", " " * half) if value < 0 else (" " * half, f"{bar:<{half}}")
        line = Text(" " * INDENT + f"{fit(name, name_cells, glyphs.ellipsis):<{name_cells}} {decades(value):>7}  ")
        line.append(left, style="blue").append(glyphs.mark, style="dim").append(right, style="blue")
        console.print(line, no_wrap=True, overflow="crop")


def _first_seeds(rows: Sequence[Row]) -> list[Row]:
    """Return the first seed of each choice of arguments."""
    first: dict[str, Row] = {}
    for row in rows:
        first.setdefault(repr(sorted(row.arguments.items(), key=str)), row)
    return list(first.values())


def _decades(row: Row) -> float | None:
    value = row.metrics.get("decades")
    return None if value is None or not math.isfinite(value) else float(value)


def _name(row: Row, axes: Sequence[str]) -> str:
    return visible(" ".join(f"{axis}={row.arguments.get(axis)}" for axis in axes))
