"""`full`: the terminal report, drawn for the stream it goes to; a clean target of many takes three lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from gradscope.gate.outcome import Outcome
from gradscope.report.console import rendered
from gradscope.report.formats.summary import counted
from gradscope.report.glyphs import glyphs_for
from gradscope.report.names import visible
from gradscope.report.terminal.page import render
from gradscope.report.terminal.verdict import draw_verdict


def full(outcomes: Sequence[Outcome], stream: TextIO | None, *, show_all: bool = False, brief: bool = False) -> str:
    """Render the outcomes for a terminal or a log; `brief` gives a clean one of several two lines."""

    def draw(console: Console) -> None:
        for number, outcome in enumerate(outcomes):
            if number:
                console.print()
            _draw(outcome, console)

    def _draw(outcome: Outcome, console: Console) -> None:
        clean = all(finding.severity == "info" for finding in outcome.diagnosis.findings)
        if brief and clean and len(outcomes) > 1 and not show_all:
            title = Text(visible(outcome.name), style="bold")
            console.print(title.append(f"  {counted(outcome)}", style="not bold dim"))
            draw_verdict(outcome.diagnosis, console, glyphs_for(console.encoding))
        else:
            if len(outcomes) > 1:
                rule = glyphs_for(console.encoding).rule * 2
                console.print(Text(f"{rule} {visible(outcome.name)}", style="bold"), overflow="fold")
            render(outcome.recording, outcome.diagnosis, console, show_all=show_all)

    return rendered(draw, stream)
