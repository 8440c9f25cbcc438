"""Set and shelter the random number generators that a model's code may draw from."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator

import torch


def seed_everything(seed: int | None) -> None:
    """Seed torch, Python and NumPy (where it is loaded); None leaves them all."""
    if seed is None:
        return
    torch.manual_seed(seed)
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)


@contextlib.contextmanager
def sheltered(seed: int = 0) -> Iterator[None]:
    """Let the inside draw random numbers from `seed`, and give every generator back as it was."""
    numpy = sys.modules.get("numpy")
    python_state = random.getstate()
    numpy_state = numpy.random.get_state() if numpy is not None else None
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        seed_everything(seed)
        try:
            yield
        finally:
            random.setstate(python_state)
            if numpy is not None and numpy_state is not None:
                numpy.random.set_state(numpy_state)
