"""The report in the terminal: what was inspected, the verdict, where it breaks, what to do, and what was not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradscope.report.terminal.page import render

__all__ = ["render"]


def __getattr__(name: str) -> Any:
    # Late: `explain` wants the layout and not the page.
    if name == "render":
        from gradscope.report.terminal.page import render

        return render
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
