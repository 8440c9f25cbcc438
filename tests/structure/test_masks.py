"""A mask of zeros and ones that a branch is laid under (padded tokens) is no scale; weights of tokens are one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.structure.watching import structure_of

N, T, D = 4, 6, 8


class Block(nn.Module):
    def __init__(self, mask: torch.Tensor, *, on_skip: bool) -> None:
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(D), nn.Linear(D, D), nn.Linear(D, D)
        self.on_skip = on_skip
        self.register_buffer("mask", mask)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        work = self.b(torch.relu(self.a(self.norm(x))))
        return x * self.mask + work if self.on_skip else x + work * self.mask


LENGTHS = torch.tensor([6, 4, 6, 1])
PADDED = (torch.arange(T) < LENGTHS[:, None])[..., None]


@pytest.mark.parametrize(
    ("mask", "kind"),
    [
        (PADDED.float(), "identity"),
        (PADDED, "identity"),
        (torch.ones(N, T, 1), "identity"),
        ((torch.arange(D) % 2).float()[None, None], "identity"),
        (0.5 * PADDED.float(), "scaled"),
        (torch.linspace(0.1, 0.9, T)[None, :, None], "scaled"),
        (torch.tensor(0.5), "scaled"),
    ],
    ids=["tokens", "bool", "nothing padded", "channels", "halved", "weights", "one number"],
)
@pytest.mark.parametrize("on_skip", [False, True], ids=["branch", "skip"])
def test_kind(mask: torch.Tensor, kind: str, on_skip: bool) -> None:
    blocks = [Block(mask, on_skip=on_skip) for _ in range(2)]
    network = nn.Sequential(nn.Linear(D, D), *blocks, nn.Linear(D, 3))
    assert [site.kind for site in structure_of(network, torch.randn(N, T, D)).sites] == [kind] * 2
