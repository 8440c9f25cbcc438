"""Models that seed torch's generator in their forward: a run that cannot be repeated is said to be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import gradscope


class Seeded(nn.Module):
    """Draws its dropout from a seed that it sets."""

    def __init__(self, seed: Callable[[], object]) -> None:
        super().__init__()
        self.lin, self.drop, self.seed = nn.Linear(6, 3), nn.Dropout(0.5), seed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seed()
        return self.drop(self.lin(x))


def fixed() -> None:
    torch.manual_seed(5)


def derived() -> None:
    torch.manual_seed(int(torch.randint(2**31, ())))


@pytest.mark.parametrize(("seed", "told"), [(torch.seed, True), (fixed, False), (derived, False)])
def test_only_seeds_from_elsewhere_are_told(seed: Callable[[], object], told: bool) -> None:
    model, x = Seeded(seed), torch.randn(4, 6)
    state = torch.get_rng_state()
    seen = gradscope.inspect(model, (x,), seed=0).recording
    what = [row["what"] for row in seen.rows("confessions")]
    assert ("the same numbers from the same seed" in what) is told
    assert torch.equal(torch.get_rng_state(), state)
