"""What a watched step spends its time on: python -m benchmarks.split [--only NAME].

A few functions are wrapped for the run, each time in what it takes itself; what no wrapped function takes of the
difference to the plain step is module calls, hooks and the function mode. The wrapping itself costs some microseconds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from benchmarks.printed import header, say
from benchmarks.watching import plain_step, watched_step
from benchmarks.workloads import WORKLOADS, Workload
from gradscope.probe.session import Session
from gradscope.probe.signals.hub import Signals
from gradscope.probe.structure.streams import StreamWatch
from gradscope.probe.watching.rows import Rows

PARTS: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    ("norms and inner products", Rows, ("_norm", "_dot", "norms", "read")),
    ("other signals", Signals, ("forward", "gradient", "function", "addition", "parameters", "finish", "read")),
    ("graph", StreamWatch, ("before_backward", "after_backward", "close")),
    ("tables", Session, ("record",)),
)
"""Parts of a step, and the methods they are made of."""
STEPS = 15


class Clock:
    """CPU seconds of each part, without what other parts take inside of it."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._inside: list[float] = []

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does the same and is timed."""

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            self._inside.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                taken = time.process_time() - start
                self.seconds[part] += taken - self._inside.pop()
                if self._inside:
                    self._inside[-1] += taken

        return wrapped

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have every part timed inside of this."""
        with ExitStack() as stack:
            for part, kind, names in PARTS:
                for name in names:
                    original = getattr(kind, name)
                    setattr(kind, name, self.timed(part, original))
                    stack.callback(setattr, kind, name, original)
            yield


def main() -> int:
    """Print one Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    only = parser.parse_args().only
    torch.manual_seed(0)
    say(header(torch.device("cpu")))
    names = [part for part, _, _ in PARTS]
    say(f"\n| workload | plain step | watching | {' | '.join(names)} | calls, hooks, modes |")
    say("|" + " --- |" * (4 + len(names)))
    for workload in WORKLOADS:
        if only in workload.name:
            say(_row(workload, names))
    return 0


def _row(workload: Workload, names: list[str]) -> str:
    task = workload.build(torch.device("cpu"))
    plain, watched, clock = plain_step(task), watched_step(task, "default"), Clock()
    for step in (plain, watched) * 3:
        step()
    plains, extras, parts = [], [], defaultdict(list)
    for _ in range(STEPS):
        clock.seconds.clear()
        start = time.process_time()
        plain()
        middle = time.process_time()
        with clock.running():
            watched()
        end = time.process_time()
        plains.append(middle - start)
        extras.append(end - middle - (middle - start))
        for name in names:
            parts[name].append(clock.seconds[name])
    extra, taken = statistics.median(extras), [statistics.median(parts[name]) for name in names]
    cells = [*taken, extra - sum(taken)]
    shown = " | ".join(f"{seconds * 1e3:.1f} ms" for seconds in [statistics.median(plains), extra, *cells])
    return f"| {workload.name} | {shown} |"


if __name__ == "__main__":
    sys.exit(main())
