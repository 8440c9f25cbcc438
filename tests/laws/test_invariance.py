"""The verdict is of the network: not of the loss's scale or reduction, nor of how much data or width there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradscope


@dataclass(frozen=True)
class Size:
    """What a network and its step are measured with."""

    width: int = 32
    samples: int = 24
    tokens: int = 10
    factor: float = 1.0
    reduction: str = "mean"


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(11)


class Mix(nn.Module):
    """Attention and a feed-forward part, with skips or without."""

    def __init__(self, width: int, skip: bool) -> None:
        super().__init__()
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend = nn.MultiheadAttention(width, 4, batch_first=True)
        self.think = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.skip = float(skip)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.one(x)
        f = self.attend(h, h, h, need_weights=False)[0]
        x = x + f if self.skip else f
        out: torch.Tensor = self.think(self.two(x))
        return x + out if self.skip else out


class Words(nn.Module):
    def __init__(self, size: Size, depth: int, skip: bool) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(16, size.width), nn.Parameter(torch.randn(size.tokens, size.width))
        self.blocks = nn.Sequential(*[Mix(size.width, skip) for _ in range(depth)])
        self.head = nn.Linear(size.width, 16)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.blocks(self.words(ids) + self.places))
        return out


class Memory(nn.Module):
    def __init__(self, size: Size, gain: float) -> None:
        super().__init__()
        self.words, self.turn = nn.Embedding(16, size.width), nn.Linear(size.width, size.width)
        self.head = nn.Linear(size.width, 16)
        nn.init.orthogonal_(self.turn.weight, gain)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        h = torch.zeros_like(x[:, 0])
        for t in range(24):
            h = torch.tanh(x[:, t % ids.shape[1]] + self.turn(h))
        out: torch.Tensor = self.head(h)
        return out


def plain(depth: int, make: Callable[[int], list[nn.Module]]) -> Callable[[Size], nn.Module]:
    def build(size: Size) -> nn.Module:
        layers = [layer for _ in range(depth) for layer in make(size.width)]
        return nn.Sequential(nn.Linear(32, size.width), *layers, nn.Linear(size.width, 16))

    return build


def he(width: int) -> list[nn.Module]:
    layer = nn.Linear(width, width)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return [layer, nn.ReLU()]


NETWORKS: dict[str, tuple[Callable[[Size], nn.Module], bool, str]] = {
    "relu he": (plain(8, he), False, "will-train"),
    "sigmoids": (plain(14, lambda n: [nn.Linear(n, n), nn.Sigmoid()]), False, "will-not-train"),
    "batch norm without skips": (
        plain(70, lambda n: [nn.Linear(n, n), nn.BatchNorm1d(n), nn.ReLU()]), False, "will-not-train",
    ),
    "pre-norm transformer": (lambda size: Words(size, 6, True), True, "will-train"),
    "transformer without skips": (lambda size: Words(size, 8, False), True, "will-not-train"),
    "fading memory": (lambda size: Memory(size, 0.1), True, "will-not-train"),
}  # fmt: skip

CHANGES: dict[str, Callable[[Size], Size]] = {
    "as it is": lambda size: size,
    "loss x 1000": lambda size: replace(size, factor=1e3),
    "loss / 1000": lambda size: replace(size, factor=1e-3),
    "sum": lambda size: replace(size, reduction="sum"),
    "batch x 2": lambda size: replace(size, samples=2 * size.samples),
    "tokens x 2": lambda size: replace(size, tokens=2 * size.tokens),
    "width x 2": lambda size: replace(size, width=2 * size.width),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_verdict_stays(name: str, change: str) -> None:
    build, words, expected = NETWORKS[name]
    size = CHANGES[change](Size())
    torch.manual_seed(3)
    model = build(size)
    inputs: torch.Tensor = torch.randn(size.samples, 32, generator=generator())
    if words:
        inputs = torch.randint(16, (size.samples, size.tokens), generator=generator())

    def loss(output: torch.Tensor, _: object) -> torch.Tensor:
        rows = output.flatten(0, -2)
        target = torch.randint(16, (len(rows),), generator=generator())
        return size.factor * F.cross_entropy(rows, target, reduction=size.reduction)

    assert gradscope.inspect(model, inputs, loss).verdict == expected
