"""Limits on one architecture's time and memory, so that none takes the others down."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager

LIMIT_S = 120.0
"""Processor time of one architecture: wall time would judge how busy the machine is."""
MEMORY_BYTES = 12 * 2**30
"""Address space of one process, of which the libraries' own code takes four: two of them fit a small machine."""
AGAIN_S = 5.0
"""The alarm rings again so often, for code that takes it for an error of its own and tries on."""


@contextmanager
def time_limit(limit_s: float) -> Iterator[None]:
    """Raise TimeoutError inside the block when it takes more than `limit_s` seconds of processor time."""

    def late(*_: object) -> None:
        raise TimeoutError(f"no answer within {limit_s:.0f} s of processor time")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, limit_s, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def limit_memory(num_bytes: int = MEMORY_BYTES) -> None:
    """Make allocations beyond `num_bytes` of address space raise in this process."""
    resource.setrlimit(resource.RLIMIT_AS, (num_bytes, num_bytes))
