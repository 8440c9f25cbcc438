"""Progress on stderr: only in a terminal, and only for what takes longer than a second."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from gradscope.report.names import fit

PATIENCE_S = 1.0
"""Seconds without a word; shorter than that a progress bar only flickers."""

Report = Callable[[str, int, int], None]
"""``report(stage, done, total)``; a total of 0 is unknown."""


class _TimeLeft(ProgressColumn):
    """How much longer it will take, in words; nothing while that is unknown."""

    def render(self, task: Task) -> Text:
        """Say it."""
        left = task.time_remaining
        if not left:
            return Text()
        return Text(f"about {left / 60:.0f} min left" if left > SECONDS_SHOWN else f"about {left:.0f} s left")


SECONDS_SHOWN = 90
"""Seconds up to which the rest is told in seconds."""


@contextmanager
def showing_progress(first_stage: str) -> Iterator[Report]:
    """Show the stages of a long piece of work and clear them away at its end.

    Yields:
        The function to call with each stage.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda stage, done, total: None
        return
    bar = Progress(
        SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(24),
        TimeElapsedColumn(), _TimeLeft(),
        console=Console(stderr=True, markup=False, highlight=False), transient=True,
        redirect_stdout=False, redirect_stderr=False,
    )  # fmt: skip
    task = bar.add_task(first_stage, total=None)
    timer = threading.Timer(PATIENCE_S, bar.start)
    timer.daemon = True
    timer.start()

    def report(stage: str, done: int, total: int) -> None:
        bar.update(task, description=fit(stage, 48), completed=done, total=total or None)

    try:
        yield report
    finally:
        timer.cancel()
        bar.stop()
