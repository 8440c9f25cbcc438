"""The laws that have a headline number, read where a user reads them: `gradscope.inspect` and the machine view."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradscope
from gradscope.report.machine import to_object
from tests.laws.measuring import Residual, Stack, assert_law, linear, over_seeds, plain_norm

N = 256


def metrics(model: nn.Module, x: Tensor, **settings: Any) -> dict[str, float]:
    """The machine view's metrics of one float64 step under a random readout."""
    readout: list[Tensor] = []

    def loss(output: Tensor, batch: Any) -> Tensor:
        if not readout:
            readout.append(torch.randn_like(output))
        return (output * readout[0]).sum()

    known: dict[str, Any] = {"num_steps": 1, "watched_steps": (0,), "optimizer": "none", "dtype": "float64"}
    inspection = gradscope.inspect(model, x, loss, **{**known, **settings})
    found: dict[str, float] = to_object(inspection.recording, inspection.diagnosis)["metrics"]
    return found


def pre_norm(depth: int) -> nn.Module:
    return Stack(N, [Residual(nn.Sequential(plain_norm(N), linear(N, 1.0))) for _ in range(depth)])


def unit(rows: int) -> Tensor:
    return nn.functional.layer_norm(torch.randn(rows, N), (N,), eps=0.0)


def test_decades_of_a_scaled_branch() -> None:
    """[7] x + a W x: D = L log10(1 + a^2) / 2, the mean of the interval over blocks as well."""
    depth, a = 20, 0.5
    predicted = 0.5 * math.log10(1 + a * a)

    def run() -> float:
        seen = metrics(Stack(N, [Residual(linear(N, a * a)) for _ in range(depth)]), torch.randn(8, N), jacobian=False)
        assert seen["num_blocks"] == depth
        assert seen["decades_per_block_low"] < seen["decades_per_block"] < seen["decades_per_block_high"]
        return seen["decades"] / depth

    assert_law(over_seeds(5, run), predicted, 2 / N)


@pytest.mark.parametrize("depth", [10, 30])
def test_pre_norm_has_no_excess(depth: int) -> None:
    """[10] Pre-LN: D = log10(1 + c L) / 2, all of it predicted by the stream's variances, so that the excess is 0."""
    seen: list[dict[str, float]] = []

    def run() -> float:
        seen.append(metrics(pre_norm(depth), unit(8), jacobian=False))
        return seen[-1]["decades"]

    assert_law(over_seeds(5, run), 0.5 * math.log10(1 + depth), 2 / N * math.log(1 + depth))
    assert_law([one["predicted_decades"] for one in seen], 0.5 * math.log10(1 + depth), 2 / N * math.log(1 + depth))
    assert_law([one["excess_decades"] for one in seen], 0.0, 2 / N * math.log(1 + depth))


def test_path_lengths() -> None:
    """[21, 22] x + a W x: L a^2 / (1 + a^2); Pre-LN: sum 1 / (v_l + 1), 3.303 at L = 40."""
    depth, a = 20, 0.5
    blocks = [Residual(linear(N, a * a)) for _ in range(depth)]
    scaled = metrics(Stack(N, blocks), torch.randn(8, N), jacobian=False)
    assert scaled["num_residual_additions"] == depth
    assert scaled["effective_path_length"] == pytest.approx(depth * a * a / (1 + a * a), rel=0.05)
    assert metrics(pre_norm(40), unit(8), jacobian=False)["effective_path_length"] == pytest.approx(3.303, rel=0.05)


def test_scale_free_decades_of_a_relu_network() -> None:
    """[E1] Bias-free ReLU: <h, dh> is the same at every layer, so that |g||h| moves with the angle alone."""
    blocks = [nn.Sequential(linear(N, 2.0 * gain), nn.ReLU()) for gain in (0.01, 100.0) * 5]
    seen = metrics(Stack(N, blocks), torch.randn(8, N), jacobian=False)
    assert abs(seen["scale_free_decades"]) < 0.3
    assert abs(seen["decades_from_first_block"]) > 0.7


@pytest.mark.parametrize("rank", [64, 16, 4])
def test_anisotropy_of_a_known_spectrum(rank: int) -> None:
    """[27] kappa_J = N / PR: 1 for an isometry, N / rank for a projection between two of them."""
    n = 64
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(n, n, bias=False) for _ in range(3)))
    for layer in model:
        nn.init.orthogonal_(layer.weight)
    basis = torch.linalg.qr(torch.randn(n, n))[0]
    model[1].weight.data = basis[:, :rank] @ basis[:, :rank].T
    measured = metrics(model, torch.randn(64, n))["jacobian_anisotropy"]
    # A few hundred draws of a chi-squared energy with `rank` degrees of freedom.
    assert measured == pytest.approx(n / rank, rel=0.25 if rank < n else 1e-6)


@pytest.mark.parametrize("depth", [2, 8])
def test_shattering(depth: int) -> None:
    """[23] Inputs at 5 % noise: cosine prod(1 - theta_l / pi), theta by the arc-cosine map (Balduzzi 2017)."""
    cosine, predicted = 1 / math.sqrt(1 + 0.05**2), 1.0
    for _ in range(depth):
        theta = math.acos(min(1.0, cosine))
        predicted *= 1 - theta / math.pi
        cosine = (math.sin(theta) + (math.pi - theta) * math.cos(theta)) / math.pi

    def run() -> float:
        blocks = [nn.Sequential(linear(N, 2.0), nn.ReLU()) for _ in range(depth)]
        x = nn.functional.normalize(torch.randn(32, N)) * math.sqrt(N)
        return metrics(nn.Sequential(*blocks), x, level="deep", jacobian=False)["shattering_cosine"]

    assert_law(over_seeds(6, run), predicted, 2 * depth / N)
