"""Render outcomes in a format chosen by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from gradscope.gate.outcome import Outcome
from gradscope.report.formats.full import full
from gradscope.report.formats.registry import PLAIN_FORMATS


def render_outcomes(
    name: str, outcomes: Sequence[Outcome], stream: TextIO | None, *, show_all: bool = False, brief: bool = False
) -> str:
    """Return the outcomes as text.

    Args:
        name: full, or one of PLAIN_FORMATS.
        outcomes: What was judged.
        stream: Where the text will go, None for a file; `full` asks it for colours, width and encoding.
        show_all: For `full`: list everything.
        brief: For `full`: give a clean one of several two lines.
    """
    if name == "full":
        return full(outcomes, stream, show_all=show_all, brief=brief)
    return PLAIN_FORMATS[name](outcomes)
