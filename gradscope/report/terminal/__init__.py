"""The report in the terminal: what was inspected, the verdict, where it breaks, what to do, and what was not seen."""

from gradscope.report.terminal.page import render

__all__ = ["render"]
