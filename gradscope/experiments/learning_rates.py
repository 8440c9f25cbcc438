"""Which learning rates a wiring can be trained with, with and without warmup."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gradscope.experiments.training import SOLVED_SHARE, chance_loss, token_subject, train


@dataclass(frozen=True)
class LearningRateGrid:
    """What was tried.

    Attributes:
        rates: Learning rates of Adam, ascending.
        num_steps: Steps per run.
        warmup: Steps of warmup in the runs that have it.
        arguments: Of the model.
        vocab: Token ids.
    """

    rates: tuple[float, ...]
    num_steps: int
    warmup: int
    arguments: dict[str, Any]
    vocab: int

    @property
    def bar(self) -> float:
        """The loss below which a run counts as trained."""
        return SOLVED_SHARE * chance_loss(self.vocab)


FULL_GRID = LearningRateGrid((1e-3, 3e-3, 1e-2, 3e-2), 200, 60, {"layers": 12, "batch": 16}, 32)
QUICK_GRID = LearningRateGrid((3e-3, 1e-2, 3e-2), 110, 36, {"layers": 6, "batch": 16, "d_model": 32, "vocab": 16}, 16)

Setting = tuple[str, bool]
"""A wiring, and whether it is warmed up."""


def try_rates(
    grid: LearningRateGrid, settings: Sequence[Setting], init: str, told: Callable[[], None]
) -> dict[Setting, dict[float, float]]:
    """Train every setting at every rate; return the final losses."""
    losses: dict[Setting, dict[float, float]] = {}
    for wiring, warmed in settings:
        for rate in grid.rates:
            subject = token_subject(wiring, 0, init=init, **grid.arguments)
            history = train(subject, grid.num_steps, rate, warmup=grid.warmup if warmed else 0)
            losses.setdefault((wiring, warmed), {})[rate] = history.final_loss
            told()
    return losses


def largest_trainable(losses: dict[float, float], bar: float) -> float:
    """Return the largest rate whose run trained, 0 when none did."""
    return max((rate for rate, loss in losses.items() if loss < bar), default=0.0)
