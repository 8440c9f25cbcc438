"""Closed forms for residual stacks (numbers in brackets count the laws).

n width, L layers, c branch variance, v_l stream variance, g_l gradient at h_l; f2 factor on |g|^2 per layer going back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from tests.laws.measuring import (
    LN10,
    Apply,
    Residual,
    Seen,
    Stack,
    assert_law,
    close,
    linear,
    over_seeds,
    plain_norm,
    see,
)  # fmt: skip

N = 256


def unit(rows: int = 1, width: int = N) -> Tensor:
    """Rows of mean 0 and mean square 1 exactly."""
    return nn.functional.layer_norm(torch.randn(rows, width, dtype=torch.float64), (width,), eps=0.0)


def watched(blocks: Sequence[nn.Module], x: Tensor | None = None, **settings: object) -> Seen:
    return see(Stack(N, blocks), unit() if x is None else x, **settings)


def ln_energy_ratio(seen: Seen) -> float:
    """ln(|g_0|^2 / |g_L|^2)."""
    return 2 * LN10 * seen.decades()


@pytest.mark.parametrize("a", [1.0, 0.5, 0.1])
def test_scaled_linear_branch(a: float) -> None:
    """[7] x + a W x: f2 = 1 + a^2 c."""
    depth = 10

    def run() -> float:
        return ln_energy_ratio(watched([Residual(linear(N, a * a)) for _ in range(depth)])) / depth

    assert_law(over_seeds(12, run), math.log(1 + a * a), 2 / N)


@pytest.mark.parametrize("c", [1.0, 2.0])
def test_relu_branch(c: float) -> None:
    """[8] x + W relu(x): f2 = 1 + c / 2; He initialisation doubles the energy with every block."""
    depth = 10

    def run() -> float:
        blocks = [Residual(nn.Sequential(nn.ReLU(), linear(N, c))) for _ in range(depth)]
        return ln_energy_ratio(watched(blocks)) / depth

    assert_law(over_seeds(12, run), math.log(1 + c / 2), 2 / N)


@pytest.mark.parametrize("depth", [10, 50])
def test_stable_resnet(depth: int) -> None:
    """[9] x + W x / sqrt L: |g_0|^2 / |g_L|^2 = (1 + 1/L)^L, toward e (Hayou 2021)."""

    def run() -> float:
        return ln_energy_ratio(watched([Residual(linear(N, 1.0), scale=depth**-0.5) for _ in range(depth)]))

    assert_law(over_seeds(10, run), depth * math.log(1 + 1 / depth), 2 / N)


def pre_norm(depth: int, c: float = 1.0) -> list[nn.Module]:
    return [Residual(nn.Sequential(plain_norm(N), linear(N, c))) for _ in range(depth)]


@pytest.mark.parametrize("depth", [10, 30])
def test_pre_norm(depth: int) -> None:
    """[10, 10b] Pre-LN x + W LN(x): |g_0| / |g_L| = sqrt(v_L / v_0), v_l = 1 + c l."""
    seen: list[Seen] = []

    def run() -> float:
        seen.append(watched(pre_norm(depth)))
        return ln_energy_ratio(seen[-1])

    # Each of L layers adds a bias of O(1/n), but only v_l's share 1 / (1 + l) of it counts.
    bias = 2 / N * math.log(1 + depth)
    assert_law(over_seeds(12, run), math.log(1 + depth), bias)
    variances = [s.forward(f"blocks.{depth - 1}") ** 2 / N for s in seen]
    assert_law([math.log(v) for v in variances], math.log(1 + depth), bias)


def last_weight_gradient(depth: int) -> float:
    """ln of the gradient norm of the last branch's weight, with a final norm."""
    seen = watched([*pre_norm(depth), plain_norm(N)])
    return math.log(seen.parameter(f"blocks.{depth - 1}.branch.1.weight"))


def test_last_layer_of_pre_norm() -> None:
    """[10c] With a final LN the last layer's |dW| falls as 1 / sqrt(1 + c L) (Xiong 2020): L = 20 over 5 is 0.5345."""
    values = over_seeds(16, lambda: last_weight_gradient(20) - last_weight_gradient(5))
    assert_law(values, 0.5 * math.log(6 / 21), 4 / N)


def test_layers_of_one_pre_norm_network() -> None:
    """[10d] Within one network |dW_l| ~ 1 / sqrt(v_l): layer 1 over 40 is sqrt(41 / 2) = 4.528."""

    def run() -> float:
        seen = watched([*pre_norm(40), plain_norm(N)])
        return math.log(seen.parameter("blocks.0.branch.1.weight") / seen.parameter("blocks.39.branch.1.weight"))

    assert_law(over_seeds(10, run), 0.5 * math.log(41 / 2), 4 / N * math.log(41))


def test_a_pre_norm_layer_does_not_know_the_depth_above() -> None:
    """[10e] |dW_10| is the same at L = 20 and L = 40."""

    def at(depth: int) -> float:
        return math.log(watched([*pre_norm(depth), plain_norm(N)]).parameter("blocks.9.branch.1.weight"))

    assert_law(over_seeds(12, lambda: at(20) - at(40)), 0.0, 4 / N)


@pytest.mark.parametrize("c", [0.3, 1.0])
def test_post_norm_without_mixing(c: float) -> None:
    """[11] Post-LN LN(x + W x): f2 = (1 + c) / (1 + c) = 1."""
    depth = 12

    def run() -> float:
        return watched([Residual(linear(N, c), norm=plain_norm(N)) for _ in range(depth)]).decades() / depth

    assert_law(over_seeds(10, run), 0.0, 2 / N)


T = 64


class MeanOverTokens(nn.Module):
    """Uniform attention: every token reads the mean of all."""

    def __init__(self, variance: float) -> None:
        super().__init__()
        self.value = linear(N, variance)

    def forward(self, x: Tensor) -> Tensor:
        return self.value(x.mean(0, keepdim=True)).expand_as(x)


def collapsed() -> Tensor:
    return unit().expand(T, N).contiguous()


@pytest.mark.parametrize("c", [1.0, 0.5])
@pytest.mark.parametrize("depth", [1, 12])
def test_post_norm_with_collapsed_tokens(c: float, depth: int) -> None:
    """[12, 12b] Uniform attention on T equal tokens: 1/T + (1 - 1/T) (1 + c)^-L, for incoherent gradients.

    One layer: f2 = (1 + c / T) / (1 + c).
    """
    predicted = 1 / T + (1 - 1 / T) * (1 + c) ** -depth
    assert depth > 1 or predicted == close((1 + c / T) / (1 + c))

    def run() -> float:
        blocks = [Residual(MeanOverTokens(c), norm=plain_norm(N)) for _ in range(depth)]
        return ln_energy_ratio(watched(blocks, collapsed()))

    assert_law(over_seeds(10, run), math.log(predicted), 2 * depth / N)


@pytest.mark.parametrize("num_blocks", [12, 24])
def test_deepnorm(num_blocks: int) -> None:
    """[13] DeepNorm, all mixing: 1/T + (1 - 1/T) (1 + b^4/a^2)^-2N, a = (2N)^(1/4), b = (8N)^(-1/4) (Wang 2022)."""
    a, b = (2 * num_blocks) ** 0.25, (8 * num_blocks) ** -0.25
    predicted = 1 / T + (1 - 1 / T) * (1 + b**4 / a**2) ** (-2 * num_blocks)
    assert predicted == pytest.approx({12: 0.9511, 24: 0.9651}[num_blocks], abs=1e-4)

    def run() -> float:
        blocks = [Residual(MeanOverTokens(b**4), skip=a, norm=plain_norm(N)) for _ in range(2 * num_blocks)]
        return ln_energy_ratio(watched(blocks, collapsed()))

    assert_law(over_seeds(5, run), math.log(predicted), 2 / N)


class Gate(nn.Module):
    """alpha * f(x)."""

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch
        self.alpha = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.alpha * self.branch(x)


def test_rezero() -> None:
    """[16] ReZero: g_l equal bit for bit, branch weights without gradient, alphas with (Bachlechner 2020)."""
    depth = 30
    seen = watched([Residual(Gate(linear(N, 1.0))) for _ in range(depth)])
    assert len(set(seen.profile())) == 1
    for layer in range(depth):
        assert seen.parameter(f"blocks.{layer}.branch.branch.weight") == 0.0
        assert seen.parameter(f"blocks.{layer}.branch.alpha") > 0.0


@pytest.mark.parametrize("scale", [0.1, 10.0])
def test_peri_norm(scale: float) -> None:
    """[17] Peri-LN x + LN(f(LN x)): |g_0| / |g_L| = sqrt(1 + L), at any weight scale (Kim 2025)."""
    depth = 20

    def run() -> float:
        branches = [nn.Sequential(plain_norm(N), linear(N, scale), plain_norm(N)) for _ in range(depth)]
        return ln_energy_ratio(watched([Residual(branch) for branch in branches]))

    assert_law(over_seeds(10, run), math.log(1 + depth), 2 / N * math.log(1 + depth))


@pytest.mark.parametrize("depth", [12, 48])
def test_layer_norm_scaling(depth: int) -> None:
    """[18] x + W LN(x) / sqrt l: |g_0|^2 / |g_L|^2 = 1 + H_L (Sun 2025)."""

    def run() -> float:
        blocks = [
            Residual(nn.Sequential(plain_norm(N), Apply(scaled(layer**-0.5)), linear(N, 1.0)))
            for layer in range(1, depth + 1)
        ]
        return ln_energy_ratio(watched(blocks))

    harmonic = sum(1 / layer for layer in range(1, depth + 1))
    assert_law(over_seeds(8, run), math.log(1 + harmonic), 2 / N * harmonic)


def scaled(factor: float) -> Callable[[Tensor], Tensor]:
    return lambda x: factor * x


def path_length(seen: Seen) -> float:
    """sum r^2 / (1 + r^2) over residual sites, r the backward ratio (docs/calibration.md)."""
    ratios = [site["branch_grad_norm"] / site["skip_grad_norm"] for site in seen.sites()]
    return sum(r * r / (1 + r * r) for r in ratios)


def test_path_length_of_a_scaled_branch() -> None:
    """[21] Energy-weighted path length of x + a W x: L a^2 / (1 + a^2), the mean of a binomial (Veit 2016)."""
    depth, a = 20, 0.5
    values = over_seeds(5, lambda: path_length(watched([Residual(linear(N, a * a)) for _ in range(depth)])))
    assert_law(values, depth * a * a / (1 + a * a), 2 * depth / N)


def test_path_length_of_pre_norm() -> None:
    """[22] Pre-LN: sum c / (v_l + c), about ln(v_L / v_0): 3.303 at L = 40."""
    depth = 40
    predicted = sum(1 / (1 + layer + 1) for layer in range(depth))
    assert predicted == pytest.approx(3.303, abs=1e-3)
    assert_law(over_seeds(5, lambda: path_length(watched(pre_norm(depth)))), predicted, 2 / N * predicted)
