"""Closed forms for stacks without skips (numbers in brackets count the laws).

n width, L layers, D decades of |g_0| over |g_L|.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from tests.laws.measuring import (
    LN10,
    Apply,
    Stack,
    assert_law,
    close,
    gaussian_mean,
    linear,
    over_seeds,
    plain_norm,
    see,
)  # fmt: skip

N = 256


def one(width: int = N) -> torch.Tensor:
    return torch.randn(1, width)


@pytest.mark.parametrize("s2", [0.5, 1.0, 1.5])
def test_deep_linear(s2: float) -> None:
    """[1] W ~ N(0, s2/n): decades per layer = (psi(n/2) + ln(2 s2 / n)) / (2 ln 10)."""
    depth = 20
    predicted = 0.5 * (float(torch.digamma(torch.tensor(N / 2))) + math.log(2 * s2 / N)) / LN10
    values = over_seeds(8, lambda: see(Stack(N, [linear(N, s2) for _ in range(depth)]), one()).decades() / depth)
    assert_law(values, predicted, 2 / N)


def test_spread_of_deep_linear() -> None:
    """[1b] sd of D over seeds = sqrt(L psi1(n/2)) / (2 ln 10), about 0.307 sqrt(L / n)."""
    n, depth, seeds = 32, 12, 60
    values = over_seeds(seeds, lambda: see(Stack(n, [linear(n, 1.0) for _ in range(depth)]), one(n)).decades())
    predicted = 0.5 * math.sqrt(depth * float(torch.polygamma(1, torch.tensor(n / 2)))) / LN10
    measured = float(torch.tensor(values).std())
    assert predicted == pytest.approx(0.307 * math.sqrt(depth / n), rel=0.02)
    assert measured == pytest.approx(predicted, rel=4 / math.sqrt(2 * seeds))  # 4 standard errors of a deviation


def test_orthogonal_linear() -> None:
    """[2] Orthogonal weights: D = 0 (Saxe 2013)."""
    layers = [nn.Linear(N, N, bias=False, dtype=torch.float64) for _ in range(20)]
    for layer in layers:
        nn.init.orthogonal_(layer.weight)
    assert see(Stack(N, layers), one()).decades() == close(0, 1e-12)


@pytest.mark.parametrize(("relu", "factor"), [(False, 1 / math.sqrt(3)), (True, 1 / math.sqrt(6))])
def test_default_linear(relu: bool, factor: float) -> None:
    """[3, 3r] nn.Linear's default (variance 1/(3n)): norm factor 1/sqrt 3, with ReLU 1/sqrt 6."""
    depth = 20

    def run() -> float:
        blocks = [nn.Linear(N, N) for _ in range(depth)]
        stack = [nn.Sequential(b, nn.ReLU()) if relu else b for b in blocks]
        return see(Stack(N, stack), one()).decades() / depth

    assert_law(over_seeds(8, run), math.log10(factor), 2 / N)


def test_relu_he() -> None:
    """[4] ReLU He: ln(|g_0|^2 / |g_L|^2) ~ N(-b/2, b), b = 5 L / n (Hanin & Nica 2018)."""
    n, depth, seeds = 128, 12, 60

    def run() -> float:
        blocks = [nn.Sequential(linear(n, 2.0), nn.ReLU()) for _ in range(depth)]
        return 2 * LN10 * see(Stack(n, blocks), one(n)).decades()

    values = over_seeds(seeds, run)
    b = 5 * depth / n
    assert_law(values, -b / 2)
    assert float(torch.tensor(values).var()) == pytest.approx(b, rel=4 * math.sqrt(2 / seeds))


def tanh_fixed_point(sw2: float, sb2: float) -> float:
    q = 1.0
    for _ in range(2000):
        q = sw2 * gaussian_mean(lambda z: torch.tanh(z) ** 2, q) + sb2
    return q


@pytest.mark.parametrize(
    ("sw2", "predicted"), [(1.0, -0.05987), (1.5, -0.01375), (1.76095, 0.0), (2.5, 0.02721), (4.0, 0.06394)]
)
def test_tanh_mean_field(sw2: float, predicted: float) -> None:
    """[5, 5c] tanh, sb2 = .05: decades per layer = log10(chi1) / 2, chi1 = sw2 E tanh'(sqrt(q*) z)^2."""
    sb2, depth = 0.05, 12
    q = tanh_fixed_point(sw2, sb2)
    chi = sw2 * gaussian_mean(lambda z: (1 - torch.tanh(z) ** 2) ** 2, q)
    assert 0.5 * math.log10(chi) == pytest.approx(predicted, abs=2e-5)

    def run() -> float:
        blocks = [nn.Sequential(nn.Tanh(), linear(N, sw2, bias_variance=sb2)) for _ in range(depth)]
        return see(Stack(N, blocks), math.sqrt(q) * one()).decades() / depth

    assert_law(over_seeds(6, run), 0.5 * math.log10(chi), 2 / N)


def test_tanh_without_bias_is_a_power_law() -> None:
    """[5d] tanh, sw2 = 1, sb2 = 0, L = 200: D = sum log10(chi(q_l)) / 2 = -1.22, not exponential."""
    depth, q, predicted = 200, 1.0, 0.0
    for _ in range(depth):
        predicted += 0.5 * math.log10(gaussian_mean(lambda z: (1 - torch.tanh(z) ** 2) ** 2, q, 401))
        q = gaussian_mean(lambda z: torch.tanh(z) ** 2, q, 401)
    assert predicted == pytest.approx(-1.2247, abs=2e-3)

    def run() -> float:
        return see(Stack(N, [nn.Sequential(nn.Tanh(), linear(N, 1.0)) for _ in range(depth)]), one()).decades()

    assert_law(over_seeds(4, run), predicted, 2 * depth / N)


def test_sigmoid() -> None:
    """[6] sigmoid, variance 1/n: chi = 0.05572 (bound 1/16), -0.627 decades per layer."""
    q = 0.25
    for _ in range(200):
        q = gaussian_mean(lambda z: torch.sigmoid(z) ** 2, q)
    chi = gaussian_mean(lambda z: (torch.sigmoid(z) * (1 - torch.sigmoid(z))) ** 2, q)
    assert chi == pytest.approx(0.05572, abs=2e-5)
    depth = 12

    def run() -> float:
        blocks = [nn.Sequential(nn.Sigmoid(), linear(N, 1.0)) for _ in range(depth)]
        return see(Stack(N, blocks), math.sqrt(q) * one()).decades() / depth

    assert_law(over_seeds(6, run), 0.5 * math.log10(chi), 2 / N)


@pytest.mark.parametrize("variance", [0.1, 1.0, 10.0])
def test_pre_norm_linear_without_residual(variance: float) -> None:
    """[14] x = W LN(x), no skip: D = 0 at any weight scale."""
    depth = 20

    def run() -> float:
        # The first norm sees a random input; start after one layer so that every station has the same scale.
        blocks = [nn.Sequential(plain_norm(N), linear(N, variance)) for _ in range(depth)]
        profile = see(Stack(N, [linear(N, variance), *blocks]), one()).profile()
        return (profile[1] - profile[-1]) / depth

    assert_law(over_seeds(6, run), 0.0, 2 / N)


def test_pre_norm_relu_without_residual() -> None:
    """[14b] x = relu(W LN(x)): |g|^2 factor pi / (pi - 1), norm x 1.2112."""
    depth = 20

    def run() -> float:
        blocks = [nn.Sequential(plain_norm(N), linear(N, 1.0), nn.ReLU()) for _ in range(depth + 1)]
        profile = see(Stack(N, blocks), one()).profile()
        return (profile[1] - profile[-1]) / depth

    assert_law(over_seeds(6, run), 0.5 * math.log10(math.pi / (math.pi - 1)), 2 / N)


@pytest.mark.parametrize("batch", [64, 256])
def test_batch_norm_relu(batch: int) -> None:
    """[15] Plain BN-ReLU: norm x sqrt(pi / (pi - 1)) = 1.2112 per layer (Yang 2019)."""
    depth = 10

    def run() -> float:
        blocks = [
            nn.Sequential(linear(N, 1.0), nn.BatchNorm1d(N, eps=1e-12, affine=False), nn.ReLU())
            for _ in range(depth + 1)
        ]
        profile = see(Stack(N, blocks), torch.randn(batch, N)).profile()
        return (profile[1] - profile[-1]) / depth

    assert_law(over_seeds(3, run), 0.5 * math.log10(math.pi / (math.pi - 1)), 2 / N)


@pytest.mark.parametrize("widths", [(256, 1024), (1024, 256)])
def test_changing_width(widths: tuple[int, int]) -> None:
    """[19] Linear n_in to n_out, variance 1/n_in: L2^2 factor 1, mean-square factor n_out / n_in.

    The two disagree where widths change.
    """
    n_in, n_out = widths

    def run() -> float:
        profile = see(Stack(n_in, [linear(n_in, 1.0, n_out)]), one(n_in)).profile()
        return 2 * LN10 * (profile[0] - profile[1])

    values = over_seeds(12, run)
    assert_law(values, 0.0, 2 / min(widths))
    mean_squares = [value - math.log(n_in) + math.log(n_out) for value in values]
    assert_law(mean_squares, math.log(n_out / n_in), 2 / min(widths))


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_shattering_of_relu_he(depth: int) -> None:
    """[23] Two orthogonal inputs: gradient cosine prod(1 - theta_l / pi), theta by the arc-cosine map.

    The cosine of g(a) and g(b) comes from the norms of g(a), g(b) and g(a) + g(b), the gradient of a shared shift.
    """
    cosine, predicted = 0.0, 1.0
    for _ in range(depth):
        theta = math.acos(min(1.0, cosine))
        predicted *= 1 - theta / math.pi
        cosine = (math.sin(theta) + (math.pi - theta) * math.cos(theta)) / math.pi

    def run() -> float:
        model = Stack(N, [nn.Sequential(linear(N, 2.0), nn.ReLU()) for _ in range(depth)]).double()
        pair = torch.linalg.qr(torch.randn(N, 2, dtype=torch.float64))[0].T * math.sqrt(N)
        readout = torch.randn(N, dtype=torch.float64)
        a, b, both = (
            see(model, x, loss=lambda out, batch: (out @ readout).sum()).parameter("start.shift")
            for x in (pair[:1], pair[1:], pair)
        )
        return (both**2 - a**2 - b**2) / (2 * a * b)

    assert_law(over_seeds(10, run), predicted, 2 * depth / N)


def test_functions_count_as_layers() -> None:
    """A stack of one function is measured like one of modules: doubling twice is two octaves."""
    assert see(Stack(N, [Apply(lambda x: 2 * x), Apply(lambda x: 2 * x)]), one()).decades() == close(math.log10(4))
