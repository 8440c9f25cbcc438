"""An experiment's result in the terminal and in Markdown: its tables, and what it says to each claim."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from rich.console import Console, JustifyMethod
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from gradscope.experiments.result import Cell, Check, Claim, ClaimVerdict, ExperimentResult, Table
from gradscope.report.glyphs import Glyphs, glyphs_for
from gradscope.report.inert import inert
from gradscope.report.names import visible
from gradscope.report.numbers import MISSING, brief
from gradscope.report.terminal.layout import INDENT, draw_note, draw_title

_STYLES: dict[ClaimVerdict, str] = {"holds": "green", "does not hold": "red", "depends": "yellow"}
_MOST_CHECKS = 6
"""Checks shown under a claim; the saved result has all."""

GAP = 2
"""Cells between columns."""

_UNBROKEN = 16
"""Cells up to which a column's entries are not broken in two: verdicts, numbers."""


def draw_experiment(result: ExperimentResult, console: Console) -> None:
    """Print the result."""
    glyphs = glyphs_for(console.encoding)
    heading = Text(visible(result.title), style="bold")
    form = "short form, " if result.quick else ""
    heading.append(f"  {result.name}, {form}{result.seconds:.0f} s", style="not bold dim")
    console.print(heading)
    for table in result.tables:
        draw_table(table, console, glyphs)
    if result.claims:
        draw_title(console, "Claims", "what is written, and what was measured here")
    for claim in result.claims:
        _draw_claim(claim, console, glyphs)
    if result.notes:
        console.print()
    for note in result.notes:
        draw_note(console, visible(note))


def draw_table(table: Table, console: Console, glyphs: Glyphs) -> None:
    """Print one table with its title and note."""
    draw_title(console, visible(table.title))
    grid = Grid(box=None, padding=(0, GAP, 0, 0), show_edge=False, header_style="dim")
    headings = [visible(heading) for heading in table.columns]
    if not _fits(table, headings, console.width):
        headings = [_stacked(heading, _widest(table, place)) for place, heading in enumerate(headings)]
    roomy = _fits(table, headings, console.width)
    for place, heading in enumerate(headings):
        numeric = all(isinstance(row[place], int | float | None) for row in table.rows)
        side: JustifyMethod = "right" if numeric else "left"
        # Where not everything has room, numbers stay whole and words are broken.
        whole = numeric or (roomy and _widest(table, place) <= _UNBROKEN)
        grid.add_column(Text(heading), justify=side, overflow="fold", no_wrap=whole)
    for row in table.rows:
        grid.add_row(*(Text(_cell(cell).replace(MISSING, glyphs.missing)) for cell in row))
    console.print(Padding(grid, (0, 0, 0, INDENT)))
    if table.note:
        draw_note(console, visible(table.note))


def _fits(table: Table, headings: Sequence[str], room: int) -> bool:
    """Tell whether the table with these headings fits into so many cells."""
    widths = [max(_widest(table, place), *map(len, text.split("\n"))) for place, text in enumerate(headings)]
    return sum(widths) + GAP * (len(widths) - 1) <= room - INDENT


def _widest(table: Table, place: int) -> int:
    return max((len(_cell(row[place])) for row in table.rows), default=0)


def _stacked(heading: str, width: int) -> str:
    """Break a heading into lines no wider than its column's cells or its longest word."""
    words = heading.split()
    return "\n".join(wrap(" ".join(words), max(width, *map(len, words), 1), break_long_words=False))


def _draw_claim(claim: Claim, console: Console, glyphs: Glyphs) -> None:
    style = _STYLES[claim.verdict]
    sign = {"holds": glyphs.good, "does not hold": glyphs.bad, "depends": glyphs.warning}[claim.verdict]
    text = Text(f"{sign} {claim.verdict}", style=style)
    text.append(f"  {visible(claim.text)}", style="default").append(f"  {visible(claim.source)}", style="dim")
    console.print(Padding(text, (0, 0, 0, INDENT)))
    body = [visible(claim.reading)] if claim.reading else []
    body += [_checked(check) for check in claim.checks[:_MOST_CHECKS]]
    if len(claim.checks) > _MOST_CHECKS:
        body.append(f"and {len(claim.checks) - _MOST_CHECKS} more settings")
    for line in body:
        console.print(Padding(Text(line, style="dim"), (0, 0, 0, INDENT + 2)))


def _checked(check: Check) -> str:
    return f"{visible(check.setting)}: {visible(check.measure)} {brief(float(check.value))} ({check.criterion})"


def _cell(cell: Cell) -> str:
    if cell is None:
        return MISSING
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return brief(cell) if isinstance(cell, float) else visible(str(cell))


def experiment_markdown(result: ExperimentResult) -> str:
    """Return the result as a Markdown section."""
    return "\n".join(_markdown(result)) + "\n"


def _markdown(result: ExperimentResult) -> Iterator[str]:
    yield from (f"## {result.title}", "")
    for table in result.tables:
        yield from (f"### {table.title}", "", table_markdown(table))
    if result.claims:
        yield from ("| claim | source | verdict | measured |", "| --- | --- | --- | --- |")
        for claim in result.claims:
            measured = "; ".join(_checked(check) for check in claim.checks)
            yield _row([claim.text, claim.source, f"**{claim.verdict}**", f"{claim.reading} {measured}".strip()])
        yield ""
    yield from (f"- {note}" for note in result.notes)


def table_markdown(table: Table) -> str:
    """Return one table as Markdown, with its note."""
    lines = [_row(table.columns), _row(["---"] * len(table.columns))]
    lines += [_row([inert(cell) if isinstance(cell, str) else _cell(cell) for cell in row]) for row in table.rows]
    return "\n".join([*lines, "", table.note, ""] if table.note else [*lines, ""])


def _row(cells: Iterator[str] | list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
