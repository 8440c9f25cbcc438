"""Stochastic depth drops branches of whole samples: that is no scale, however it is written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.structure.watching import structure_of

D, KEEP = 8, 0.75
Drop = Callable[[torch.Tensor], torch.Tensor]


def divided_before(x: torch.Tensor) -> torch.Tensor:
    mask = (KEEP + torch.rand(len(x), 1, 1)).floor_()
    return x.div(KEEP) * mask


def divided_in_the_mask(x: torch.Tensor) -> torch.Tensor:
    return x * x.new_empty(len(x), 1, 1).bernoulli_(KEEP).div_(KEEP)


def in_place(x: torch.Tensor) -> torch.Tensor:
    return x.mul_(torch.bernoulli(torch.full((len(x), 1, 1), KEEP)) / KEEP)


def not_made_up_for(x: torch.Tensor) -> torch.Tensor:
    return x * torch.bernoulli(torch.full((len(x), 1, 1), KEEP))


def twice_as_much(x: torch.Tensor) -> torch.Tensor:
    return 2.0 * divided_before(x)


def weighed(x: torch.Tensor) -> torch.Tensor:
    """Weights of samples that are no mask."""
    return x * torch.linspace(0.1, 0.9, len(x))[:, None, None]


class Block(nn.Module):
    def __init__(self, drop: Drop) -> None:
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(D), nn.Linear(D, D), nn.Linear(D, D)
        self.drop = drop

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.b(torch.relu(self.a(self.norm(x)))))


@pytest.mark.parametrize(
    ("drop", "kind", "scale"),
    [
        (divided_before, "identity", 1.0), (divided_in_the_mask, "identity", 1.0), (in_place, "identity", 1.0),
        (not_made_up_for, "identity", 1.0), (twice_as_much, "scaled", 2.0), (weighed, "scaled", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(3))
def test_kind_and_scale(drop: Drop, kind: str, scale: float | None, seed: int) -> None:
    torch.manual_seed(seed)
    structure = structure_of(nn.Sequential(Block(drop), Block(drop), nn.Linear(D, 3)), torch.randn(6, 5, D))
    assert [(site.kind, site.branch_scale) for site in structure.sites] == [(kind, scale)] * 2
