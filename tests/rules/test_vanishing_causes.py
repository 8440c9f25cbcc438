"""The advice of GS101 names what the record shows: scaled skips, layers without a skip, norms that cannot help."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import gradscope
from gradscope.rules.finding import Finding

WIDTH, STAGES = 32, 8
TARGETS = torch.arange(32) % 4


class Block(nn.Module):
    """Two layers with a skip, times a factor on the skip."""

    def __init__(self, scale: float = 1.0, branch: float = 1e-3) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.scale = scale
        nn.init.normal_(self.down.weight, std=branch)
        nn.init.zeros_(self.down.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x + self.down(torch.relu(self.up(self.norm(x))))


class Dimmed(torch.autograd.Function):
    """The identity, whose gradient is a tenth."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return 0.1 * grad


class Dim(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Dimmed.apply(x)


class Stage(nn.Module):
    """A layer that no skip goes around, and a block."""

    def __init__(self, between: Callable[[], nn.Module], *block: float) -> None:
        super().__init__()
        self.between, self.block = between(), Block(*block)

    def forward(self, x: Tensor) -> Tensor:
        return self.block(self.between(x))


def small(std: float = 0.02) -> nn.Linear:
    layer = nn.Linear(WIDTH, WIDTH, bias=False)
    nn.init.normal_(layer.weight, std=std)
    return layer


def vanishing(between: Callable[[], nn.Module], *block: float) -> list[Finding]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, WIDTH), *[Stage(between, *block) for _ in range(STAGES)], nn.Linear(WIDTH, 4))
    found = gradscope.inspect(net, torch.randn(32, 8), lambda out, _: F.cross_entropy(out, TARGETS))
    return [finding for finding in found.findings if finding.code == "GS101"]


def test_factors_on_the_skips_are_named_where_they_take_most() -> None:
    (finding,) = vanishing(nn.Identity, 0.2)
    assert "unscaled identity" in finding.advice


def test_layers_between_the_blocks_are_named_where_the_signal_fades_in_them() -> None:
    (finding,) = vanishing(small, 1.0, 1e-9)
    assert "activations fade as well" in finding.advice
    assert "layers there that no skip goes around" in finding.advice
    assert "put a norm behind each" in finding.advice
    assert not vanishing(lambda: small(WIDTH**-0.5)), "the advice, followed, mends it"


def test_they_are_named_where_the_branches_fill_up_what_fades() -> None:
    (finding,) = vanishing(small)
    assert "Layers that no skip goes around" in finding.advice
    assert ".between`" in finding.advice


def test_norms_whose_epsilon_outweighs_what_they_read_are_named() -> None:
    (finding,) = vanishing(lambda: nn.Sequential(small(2e-3), nn.LayerNorm(WIDTH, eps=0.1)))
    assert "their epsilon outweighs its variance" in finding.advice
    assert not vanishing(lambda: nn.Sequential(small(WIDTH**-0.5), nn.LayerNorm(WIDTH)))


@pytest.mark.parametrize("std", [0.02, WIDTH**-0.5])
def test_norms_that_start_with_small_gains_are_named_first(std: float) -> None:
    def normed(gain: float) -> nn.Module:
        norm = nn.LayerNorm(WIDTH, eps=1e-3)
        nn.init.normal_(norm.weight, std=gain)
        return nn.Sequential(small(std), norm)

    (finding,) = vanishing(lambda: normed(0.02), 1.0, 1e-9)
    assert "gains of 0.0" in finding.advice
    assert "Start them at one" in finding.advice
    assert not vanishing(lambda: normed(1.0), 1.0, 1e-9)


@pytest.mark.parametrize("between", [Dim, lambda: nn.Sequential(small(), nn.LayerNorm(WIDTH), Dim())])
def test_a_cause_that_was_not_measured_is_said_to_be_unknown(between: Callable[[], nn.Module]) -> None:
    """Small weights in front of a norm that restores what they give are no cause."""
    (finding,) = vanishing(between)
    assert finding.advice.startswith("What shrinks it was not found")
    assert "block" in finding.advice


@pytest.mark.parametrize(("scale", "cause"), [(0.9, "no skip goes around"), (0.05, "unscaled identity")])
def test_of_two_causes_the_larger_is_named(scale: float, cause: str) -> None:
    (finding,) = vanishing(small, scale)
    assert cause in finding.advice
