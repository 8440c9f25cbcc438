"""A rich console that writes to memory but knows what the real stream can show: colours, width, encoding."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import TextIO

from rich.console import Console

PIPED_COLUMNS = 100
"""Width where there is no terminal to ask: fits a code review and an 80-column name plus numbers."""


class _Sheet(io.StringIO):
    """Text in memory that reports the encoding of the stream it will be written to."""

    def __init__(self, encoding: str) -> None:
        super().__init__(newline="\n")
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]  # io.StringIO types it as None
        return self._encoding


def wants_colour(stream: TextIO | None) -> bool:
    """Decide on colour: NO_COLOR forbids (no-color.org), FORCE_COLOR demands, else only a terminal gets it."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return _is_terminal(stream) and os.environ.get("TERM") != "dumb"


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except (AttributeError, ValueError):
        return False


def rendered(draw: Callable[[Console], None], stream: TextIO | None, width: int | None = None) -> str:
    """Draw on a console shaped like `stream` and return the text.

    Args:
        draw: Receives the console.
        stream: The stream the text is meant for; it is asked, not written to. None is a file: no colour, UTF-8.
        width: Columns; by default COLUMNS, the terminal's, or PIPED_COLUMNS.
    """
    colour = stream is not None and wants_colour(stream)
    sheet = _Sheet(getattr(stream, "encoding", None) or "utf-8")
    console = Console(
        file=sheet,
        force_terminal=colour,
        color_system="auto" if colour else None,
        no_color=not colour,
        width=width or columns_of(stream),
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    draw(console)
    lines = sheet.getvalue().splitlines(keepends=True)
    return "".join(line.rstrip(" \n") + "\n" if line.endswith(" \n") else line for line in lines)


def columns_of(stream: TextIO | None) -> int:
    """Return the width to draw at: COLUMNS wins, then the terminal, then PIPED_COLUMNS."""
    wished = os.environ.get("COLUMNS", "")
    if wished.isdecimal() and int(wished) > 0:
        return int(wished)
    if stream is not None and _is_terminal(stream):
        try:
            return os.get_terminal_size(stream.fileno()).columns or PIPED_COLUMNS
        except (OSError, ValueError):
            return PIPED_COLUMNS
    return PIPED_COLUMNS
