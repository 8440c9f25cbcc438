"""The verdict in one sentence, and the headline numbers behind it."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradscope.report.glyphs import Glyphs
from gradscope.report.measures import described_measures
from gradscope.report.names import visible
from gradscope.report.terminal.layout import INDENT, draw_title
from gradscope.rules.finding import Diagnosis, Verdict

VERDICT_WORDS: dict[Verdict, str] = {
    "will-train": "Will train",
    "at-risk": "At risk",
    "will-not-train": "Will not train",
    "cannot-say": "Cannot say",
}
VERDICT_STYLES: dict[Verdict, str] = {
    "will-train": "bold green",
    "at-risk": "bold yellow",
    "will-not-train": "bold red",
    "cannot-say": "bold",
}


def verdict_sign(verdict: Verdict, glyphs: Glyphs) -> str:
    """Return the sign in front of a verdict."""
    signs: dict[Verdict, str] = {
        "will-train": glyphs.good,
        "at-risk": glyphs.warning,
        "will-not-train": glyphs.bad,
        "cannot-say": glyphs.unknown,
    }
    return signs[verdict]


def draw_verdict(diagnosis: Diagnosis, console: Console, glyphs: Glyphs) -> None:
    """Print the verdict with its sign and its reason, wrapped under itself."""
    style = VERDICT_STYLES[diagnosis.verdict]
    sentence = Text(VERDICT_WORDS[diagnosis.verdict], style=style)
    sentence.append(".  ", style="not bold default").append(visible(diagnosis.reason), style="not bold default")
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=1, no_wrap=True)
    grid.add_column(overflow="fold", ratio=1)
    grid.add_row(Text(verdict_sign(diagnosis.verdict, glyphs), style=style), sentence)
    console.print()
    console.print(grid)


def draw_measures(diagnosis: Diagnosis, console: Console) -> None:
    """Print the headline numbers that were measured, each with what it means."""
    measures = described_measures(diagnosis.metrics)
    if not measures:
        return
    draw_title(console, "Whole model")
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column(overflow="fold", style="dim")
    for measure in measures:
        grid.add_row(Text(measure.label), Text(measure.value), Text(measure.meaning))
    console.print(Padding(grid, (0, 0, 0, INDENT)))
