"""The table of blocks: gradients, residual ratios, parameters and updates; the worst ones, the rest folded in place."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.text import Text

from gradscope.report.blocks import Block, Blocks
from gradscope.report.glyphs import Glyphs
from gradscope.report.names import fit_dotted, shown_module
from gradscope.report.numbers import count, decades, magnitude
from gradscope.report.terminal.layout import SEVERITY_STYLES, draw_note, draw_title

MAX_ROWS = 14
"""Rows shown without --all; more than that and the worst are chosen."""

MIN_FOLD = 2
"""A run this short is printed: a line saying "2 more" hides more than it saves."""

ODD_DECADES = 0.1
"""A block this far (decades) from the usual change is worth a line of its own; a quarter more or less gradient."""

_WIDE = 110
"""From this width on there is room for the output norm and the last watched step."""


@dataclass(frozen=True)
class _Column:
    heading: str
    cells: int


@dataclass(frozen=True)
class _Fold:
    """A run of rows that is not shown."""

    rows: tuple[Block, ...]


def draw_table(blocks: Blocks, console: Console, glyphs: Glyphs, *, show_all: bool) -> None:
    """Print the table; nothing where there are no blocks."""
    if not blocks.rows:
        return
    draw_title(console, "Blocks" if blocks.on_stream else "Modules with parameters", f"at step {blocks.step}")
    columns = _columns(blocks, console.width)
    used = sum(column.cells + 1 for column in columns)
    flag_cells = 12
    room = max(8, console.width - 2 - used - flag_cells)
    name_cells = min(room, max(6, *(Text(shown_module(row.name, row.call)).cell_len for row in blocks.rows)))
    heading = Text("  " + " " * name_cells)
    for column in columns:
        heading.append(f" {column.heading:>{column.cells}}")
    heading.stylize("dim")
    console.print(heading, no_wrap=True, overflow="crop")
    for item in _folded(blocks.rows, show_all=show_all):
        if isinstance(item, _Fold):
            console.print(_fold_line(item, glyphs), no_wrap=True, overflow="crop")
        else:
            console.print(_row_line(item, columns, name_cells, glyphs), no_wrap=True, overflow="crop")
    _draw_legend(blocks, columns, console)


def _columns(blocks: Blocks, width: int) -> list[_Column]:
    """Leave out a column no row has a value for, and the less needed ones where the terminal is narrow."""
    wide = width >= _WIDE
    rows = blocks.rows
    wanted = [
        (_Column("gradient", 8), True),
        (_Column(f"step {blocks.later_step}", 8), wide and blocks.later_step is not None),
        (_Column("change", 6), any(row.change_decades is not None for row in rows)),
        (_Column("output", 8), wide),
        (_Column("fwd f/x", 7), any(row.forward_ratio is not None for row in rows)),
        (_Column("bwd f/x", 7), any(row.backward_ratio is not None for row in rows)),
        (_Column("param grad" if wide else "param g", 10 if wide else 7), True),
        (_Column("update", 7), any(row.update_ratio is not None for row in rows)),
    ]
    return [column for column, present in wanted if present]


def _values(row: Block) -> dict[str, str]:
    return {
        "gradient": magnitude(row.grad_norm),
        "change": decades(row.change_decades),
        "output": magnitude(row.forward_norm),
        "fwd f/x": magnitude(row.forward_ratio),
        "bwd f/x": magnitude(row.backward_ratio),
        "param grad": magnitude(row.parameter_grad_norm),
        "param g": magnitude(row.parameter_grad_norm),
        "update": magnitude(row.update_ratio),
    }


def _row_line(row: Block, columns: Sequence[_Column], name_cells: int, glyphs: Glyphs) -> Text:
    severity = next((f.severity for f in row.findings if f.severity != "info"), None)
    style = SEVERITY_STYLES[severity].removeprefix("bold ") if severity else ""
    name = fit_dotted(shown_module(row.name, row.call), name_cells, glyphs.ellipsis)
    line = Text("  ").append(name + " " * (name_cells - Text(name).cell_len), style=style)
    values = _values(row)
    for column in columns:
        value = values.get(column.heading, magnitude(row.later_grad_norm))
        quiet = value == "–"
        line.append(f" {glyphs.missing if quiet else value:>{column.cells}}", style="dim" if quiet else "")
    for code in dict.fromkeys(finding.code for finding in row.findings):
        first = next(finding for finding in row.findings if finding.code == code)
        line.append(f" {code}", style=SEVERITY_STYLES[first.severity].removeprefix("bold "))
    return line


def _folded(rows: Sequence[Block], *, show_all: bool) -> Iterator[Block | _Fold]:
    """Yield the rows to print in order, with each run of others as one fold."""
    if show_all or len(rows) <= MAX_ROWS:
        yield from rows
        return
    chosen = _worst(rows)
    run: list[Block] = []
    for number, row in enumerate(rows):
        if number not in chosen:
            run.append(row)
            continue
        yield from _run(run)
        run = []
        yield row
    yield from _run(run)


def _run(run: Sequence[Block]) -> Iterator[Block | _Fold]:
    """Fold a run of rows, unless it is no longer than the line that would stand for it."""
    if len(run) > MIN_FOLD:
        yield _Fold(tuple(run))
    else:
        yield from run


def _worst(rows: Sequence[Block]) -> set[int]:
    """Choose both ends, then flagged rows, then those whose change stands out from the others'."""
    chosen = {0, 1, len(rows) - 2, len(rows) - 1}
    changes = [row.change_decades for row in rows if row.change_decades is not None]
    usual = median(changes) if changes else 0.0
    by_need = sorted(range(len(rows)), key=lambda n: (_flag_rank(rows[n]), -_oddity(rows[n], usual), n))
    for number in by_need:
        if len(chosen) >= MAX_ROWS - 4:  # room for the fold lines between them
            break
        if _flag_rank(rows[number]) < _UNFLAGGED or _oddity(rows[number], usual) > ODD_DECADES:
            chosen.add(number)
    return chosen


_UNFLAGGED = 2


def _flag_rank(row: Block) -> int:
    severities = {finding.severity for finding in row.findings}
    return 0 if "error" in severities else 1 if "warning" in severities else _UNFLAGGED


def _oddity(row: Block, usual: float) -> float:
    """Return how far a block's change lies from the usual one, in decades; infinite where it is not a number."""
    change = row.change_decades
    if row.grad_norm is not None and not math.isfinite(row.grad_norm):
        return math.inf
    return 0.0 if change is None else abs(change - usual)


def _fold_line(fold: _Fold, glyphs: Glyphs) -> Text:
    norms = [row.grad_norm for row in fold.rows if row.grad_norm is not None and math.isfinite(row.grad_norm)]
    line = f"  {glyphs.ellipsis} {count(len(fold.rows))} more"
    if norms:
        low, high = magnitude(min(norms)), magnitude(max(norms))
        line += f", gradient {low}" + (f" to {high}" if low != high else "")
    return Text(line, style="dim")


def _draw_legend(blocks: Blocks, columns: Sequence[_Column], console: Console) -> None:
    shown = {column.heading for column in columns}
    parts = []
    if "change" in shown:
        parts.append("change: decades gained from the block's output to its input")
    if "fwd f/x" in shown or "bwd f/x" in shown:
        parts.append("f/x: branch over skip")
    if "update" in shown:
        parts.append("update: step over weight")
    if parts:
        draw_note(console, "; ".join(parts))
