"""Examine many architectures in a few processes, each with limits on time and memory."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator

from zoo.catalog import Entry
from zoo.limits import LIMIT_S, limit_memory
from zoo.table import Row, by_hand

PRELOADED = ["torch", "torchvision", "timm", "transformers", "zoo.examine"]
"""What the processes are forked with. Each architecture gets one of its own: what one leaves in memory, or breaks by
running out of it, is gone with its process."""
LOST_S = 600.0
"""Wall time after which an architecture counts as lost, its process having died or hung."""


def rows(chosen: list[Entry], num_steps: int, jobs: int, limit_s: float = LIMIT_S) -> Iterator[Row]:
    """Yield one row per entry, in order."""
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with context.Pool(jobs, initializer=limit_memory, maxtasksperchild=1) as pool:
        waiting = [(entry, pool.apply_async(_examine, (entry, num_steps, limit_s))) for entry in chosen]
        for entry, result in waiting:
            try:
                yield result.get(timeout=LOST_S)
            except multiprocessing.TimeoutError:
                yield Row(entry.target, f"its process was lost: no answer within {LOST_S:.0f} s", **by_hand(entry))


def _examine(entry: Entry, num_steps: int, limit_s: float) -> Row:
    import torch

    torch.set_num_threads(1)
    from zoo.examine import examine

    return examine(entry, num_steps, limit_s)
