"""A bound on the memory of a trial: what failures teach may lead to inputs of which a forward makes far too much."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

SHARE = 0.5
"""Of the memory (bytes) that is free, what one trial may take: the rest is for what else runs."""
FREE = Path("/proc/meminfo")
"""Where Linux tells what programs can still have, in kB."""
CONTAINER = Path("/sys/fs/cgroup")
"""Where a container tells what its programs may have together, and what they have, in bytes."""
DATA_FIELD = 5
"""Which number of /proc/self/statm is the data and the stack, in pages."""


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Make allocations fail that would take more than `SHARE` of what is free, instead of ending the process.

    A failed allocation makes the search go on with fewer samples, then with smaller inputs. Elsewhere than on
    Linux there is no such bound.
    """
    if sys.platform != "linux":
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    with contextlib.suppress(OSError):  # a sandbox may hide what is free; then there is no bound either
        limits = [_taken_bytes() + int(SHARE * free_bytes()), *(n for n in before if n != resource.RLIM_INFINITY)]
        resource.setrlimit(resource.RLIMIT_DATA, (min(limits), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def free_bytes() -> int:
    """Return how much memory this process can still have, within its container."""
    told = FREE.read_text().partition("MemAvailable:")[2].split()
    free = int(told[0]) * 1024 if told else sys.maxsize
    with contextlib.suppress(OSError, ValueError):  # no container, or one without a bound ("max")
        free = min(free, int((CONTAINER / "memory.max").read_text()) - int((CONTAINER / "memory.current").read_text()))
    return max(free, 0)


def _taken_bytes() -> int:
    """Return what this process has already, as the bound counts it."""
    return int(Path("/proc/self/statm").read_text().split()[DATA_FIELD]) * os.sysconf("SC_PAGE_SIZE")
