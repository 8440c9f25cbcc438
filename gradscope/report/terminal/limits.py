"""What was not measured and why, and what to type next."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from gradscope.record import Recording
from gradscope.report.names import visible
from gradscope.report.next_commands import next_commands
from gradscope.report.terminal.layout import INDENT, draw_title
from gradscope.rules.finding import Diagnosis

MAX_LIMITS = 4
"""Limits shown without --all."""


def draw_limits(recording: Recording, console: Console, *, show_all: bool) -> None:
    """Print the confessions of the recording."""
    limits = list(recording.rows("confessions"))
    if not limits:
        return
    draw_title(console, "Not measured")
    for limit in limits if show_all else limits[:MAX_LIMITS]:
        line = Text(visible(limit["what"]), overflow="fold").append(f": {visible(limit['why'])}", style="dim")
        console.print(Padding(line, (0, 0, 0, INDENT)))
    if not show_all and len(limits) > MAX_LIMITS:
        console.print(Text(f"  and {len(limits) - MAX_LIMITS} more (--all lists them)", style="dim"))


def draw_next(recording: Recording, diagnosis: Diagnosis, console: Console) -> None:
    """Print the commands a reader is likely to want, ready to paste."""
    commands = next_commands(recording, diagnosis)
    if not commands:
        return
    draw_title(console, "Next")
    width = max(len(command) for command, _ in commands)
    for command, purpose in commands:
        line = Text("  ").append(visible(command), style="cyan")
        if width + 4 + len(purpose) < console.width:
            line.append(" " * (width - len(command)) + "  " + purpose, style="dim")
        console.print(line, no_wrap=False, overflow="fold")
