"""Texts and numbers as plotly takes them: its small markup escaped, no more digits than a screen can show."""

from __future__ import annotations

import math
from collections.abc import Iterable

from gradscope.report.html.chart import Number
from gradscope.report.html.sharing import shorten

DIGITS = 4
HOVER_CHARACTERS = 60


def plain(text: str, limit: int = HOVER_CHARACTERS) -> str:
    """Escape a text for plotly, which would read `<b>`, `<a href=...>` and entities in it.

    Example:
        >>> plain("layers.0 <b>")
        'layers.0 &lt;b&gt;'
    """
    return shorten(text, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def rounded(values: Iterable[Number], digits: int = DIGITS) -> list[Number]:
    """Keep the digits a screen can show; what cannot be drawn becomes a gap."""
    return [None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}") for value in values]
