"""The random numbers that a model is built from, drawn once more for each attempt."""

from __future__ import annotations

import random

import torch


class Draws:
    """Where the generators on the CPU stood, so that the seed alone decides the weights however much is tried."""

    def __init__(self) -> None:
        self._torch = torch.get_rng_state()
        self._python = random.getstate()

    def again(self) -> None:
        """Set the generators back to where they stood."""
        torch.set_rng_state(self._torch)
        random.setstate(self._python)
