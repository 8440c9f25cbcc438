"""Shared layout of the terminal report: section titles, label/value pairs, and the styles of severities."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradscope.report.glyphs import Glyphs
from gradscope.rules.finding import Severity

INDENT = 2
"""Cells every line of the report's body is set in from the left."""

SEVERITY_STYLES: dict[Severity, str] = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def severity_sign(severity: Severity, glyphs: Glyphs) -> str:
    """Return the sign in front of a finding."""
    return {"error": glyphs.bad, "warning": glyphs.warning, "info": glyphs.info}[severity]


def draw_title(console: Console, title: str, note: str = "") -> None:
    """Print a section title after a blank line, with a quiet note beside it."""
    console.print()
    line = Text(title, style="bold")
    if note:
        line.append(f"  {note}", style="dim")
    console.print(line)


def draw_pairs(console: Console, pairs: Iterable[tuple[str, Text]], label_width: int = 8, indent: int = INDENT) -> None:
    """Print label/value lines whose values wrap under themselves."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=label_width, no_wrap=True, style="dim")
    grid.add_column(overflow="fold", ratio=1)
    for label, value in pairs:
        grid.add_row(Text(label), value)
    console.print(Padding(grid, (0, 0, 0, indent)))


def draw_note(console: Console, note: str) -> None:
    """Print a quiet remark, wrapped under itself."""
    console.print(Padding(Text(note, style="dim", overflow="fold"), (0, 0, 0, INDENT)))


def joined(parts: Iterable[str], glyphs: Glyphs) -> Text:
    """Join phrases with a quiet middle dot."""
    text = Text()
    for part in parts:
        if text:
            text.append(f" {glyphs.dot} ", style="dim")
        text.append(part)
    return text
