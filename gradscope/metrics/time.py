"""The gradient through time: one module called again and again, as a recurrent cell is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gradscope.metrics.columns import log10_ratio

FEWEST_CALLS = 5
"""Calls (count) of one module in one forward before they are read as time steps. Fewer is weight sharing (siamese or
multi-crop networks), over which a decay is no trend."""


@dataclass(frozen=True)
class TimeProfile:
    """Gradient norms of the outputs of one module, per call.

    Attributes:
        module: The repeatedly called module.
        step: The watched step.
        grad_norm: ||g_t||_2 of the output of call t; None where none was seen.
    """

    module: str
    step: int
    grad_norm: tuple[float | None, ...]

    @property
    def decades(self) -> float | None:
        """log10(||g_first|| / ||g_last||): negative vanishes toward the first time step."""
        return log10_ratio(self.grad_norm[0], self.grad_norm[-1])

    @property
    def decades_per_call(self) -> float | None:
        """Decades divided by the number of steps in time."""
        return None if self.decades is None else self.decades / (len(self.grad_norm) - 1)

    @property
    def decades_reached(self) -> float | None:
        """The same down to the first call that any gradient reaches.

        It is very small where the gradient of the calls before that was rounded to zero. A call whose result nobody
        uses has a zero gradient as well, with an ordinary one right behind it.
        """
        return log10_ratio(self.grad_norm[self.num_unreached], self.grad_norm[-1])

    @property
    def num_unreached(self) -> int:
        """How many of the first calls receive a gradient of exactly zero although later ones do not."""
        first = next((t for t, norm in enumerate(self.grad_norm) if norm), None)
        return first or 0


def time_profiles(
    calls_of: Mapping[str, Sequence[int]], grad_norm: Mapping[int, float | None], step: int
) -> tuple[TimeProfile, ...]:
    """Return one profile per module that was called at least `FEWEST_CALLS` times, in order of the module's first call.

    Args:
        calls_of: Rows of the call table per module, in order of call.
        grad_norm: Gradient norm per row of the call table.
        step: The watched step the norms belong to.
    """
    return tuple(
        TimeProfile(module, step, tuple(grad_norm.get(row) for row in rows))
        for module, rows in calls_of.items()
        if len(rows) >= FEWEST_CALLS
    )
