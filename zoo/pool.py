"""Examine many architectures in a few processes, each with limits on time and memory."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator

from zoo.catalog import Entry
from zoo.limits import LIMIT_S, limit_memory
from zoo.table import Row

TASKS_PER_PROCESS = 25
"""A fresh process now and then: libraries keep memory."""
LOST_S = 600.0
"""Wall time after which an architecture counts as lost, its process having died or hung."""


def rows(chosen: list[Entry], num_steps: int, jobs: int, limit_s: float = LIMIT_S) -> Iterator[Row]:
    """Yield one row per entry, in order."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, initializer=_prepare, maxtasksperchild=TASKS_PER_PROCESS) as pool:
        waiting = [(entry, pool.apply_async(_examine, (entry, num_steps, limit_s))) for entry in chosen]
        for entry, result in waiting:
            try:
                yield result.get(timeout=LOST_S)
            except multiprocessing.TimeoutError:
                expected = "" if entry.expected is None else str(entry.expected)
                yield Row(entry.target, f"its process was lost: no answer within {LOST_S:.0f} s", expected=expected)


def _prepare() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    limit_memory()


def _examine(entry: Entry, num_steps: int, limit_s: float) -> Row:
    import torch

    torch.set_num_threads(1)
    from zoo.examine import examine

    return examine(entry, num_steps, limit_s)
