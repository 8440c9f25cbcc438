"""How a mistake is told: what was wrong, the rule, the place, and what to type next."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from gradscope.cli.emit import write_text
from gradscope.errors import GradscopeError
from gradscope.report.console import rendered, wants_colour
from gradscope.report.names import visible


def complain(error: GradscopeError) -> None:
    """Print an error on stderr: one line where that is a file or a log, a few coloured ones in a terminal."""
    if wants_colour(sys.stderr):
        write_text(sys.stderr, rendered(lambda console: _draw(error, console), sys.stderr))
    else:
        write_text(sys.stderr, one_line(error) + "\n")


def one_line(error: GradscopeError) -> str:
    """Tell the error in one line of plain text; several next commands are joined by "or"."""
    told = f"error: {_place(error)}{' '.join(str(error).split())}"
    if not error.hint:
        return visible(told)
    stop = "" if told.endswith((".", "?", "!")) else "."
    hints = " or ".join(" ".join(line.split()) for line in error.hint.splitlines() if line.strip())
    return visible(f"{told}{stop} try: {hints}")


def _draw(error: GradscopeError, console: Console) -> None:
    told = Text("error: ", style="bold red")
    told.append(visible(_place(error)), style="bold default")
    told.append(_lines(str(error)), style="not bold default")
    console.print(told, overflow="fold")
    if error.hint:
        console.print(Text("  try: ", style="dim").append(_lines(error.hint), style="not dim cyan"), overflow="fold")


def _lines(text: str) -> str:
    return "\n".join(visible(line) for line in text.splitlines())


def _place(error: GradscopeError) -> str:
    """Return "file:line: ", unless the message says so itself."""
    if not error.file:
        return ""
    place = f"{error.file}:{error.line}" if error.line else error.file
    named = f"{Path(error.file).name}:{error.line}" if error.line else Path(error.file).name
    return "" if named in str(error) else f"{place}: "
