"""Closed forms of number formats, Adam and the cotangent spread (numbers in brackets count the laws)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from gradscope.probe.signals.jacobian import StreamEnd, anisotropy
from tests.laws.measuring import Residual, Stack, assert_law, gaussian_mean, linear, plain_norm, see

N = 256
NUM_SITES = 12


def predicted_absorption(ratio: float, significand_bits: int) -> float:
    """E erf(2^(e(x) - p) / (r sqrt 2)) over Gaussian x, e(x) the exponent of x."""

    def share(x: Tensor) -> Tensor:
        exponent = torch.floor(torch.log2(x.abs().clamp_min(1e-300)))
        return torch.erf(torch.exp2(exponent - significand_bits) / (ratio * math.sqrt(2)))

    return gaussian_mean(share, 1.0, 400_001)


class Fresh(nn.Module):
    """A stream of unit Gaussians for every site, and a branch of the given ratio."""

    def __init__(self, ratio: float) -> None:
        super().__init__()
        self.norms = nn.ModuleList(plain_norm(N) for _ in range(NUM_SITES))
        self.mix = nn.ModuleList(nn.Linear(N, N, bias=False) for _ in range(NUM_SITES))
        self.sites = nn.ModuleList(Residual(linear(N, ratio**2)) for _ in range(NUM_SITES))
        for layer in self.mix:
            nn.init.orthogonal_(layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        for norm, mix, site in zip(self.norms, self.mix, self.sites, strict=True):
            x = site(mix(norm(x)))
        return x


@pytest.mark.parametrize("ratio", [0.1, 0.01, 0.001])
def test_residual_absorption(ratio: float) -> None:
    """[24] Share of a residual sum that bf16 (8 significand bits) and fp16 (11) leave as it was."""
    assert predicted_absorption(0.1, 8) == pytest.approx(0.0179, abs=2e-4)
    assert predicted_absorption(0.001, 11) == pytest.approx(0.2144, abs=1e-3)
    torch.manual_seed(0)
    seen = see(Fresh(ratio), torch.randn(64, N), dtype="float32")
    for metric, bits in (("absorption_bf16", 8), ("absorption_fp16", 11)):
        shares = seen.observed(metric)
        assert len(shares) == NUM_SITES
        # Operands are themselves rounded to the format first, which a share of 2^-p of them can feel.
        assert_law(shares, predicted_absorption(ratio, bits), 2.0**-bits)
    assert max(seen.observed("absorption")) < 1e-3


@pytest.mark.parametrize("rms", [1e-7, 1e-8, 1e-9, 1e-10])
def test_adam_damping(rms: float) -> None:
    """[25] Adam's first step: rms(dW) / lr = rms(|g| / (|g| + eps)), eps = 1e-8."""
    lr, eps = 1e-3, 1e-8
    predicted = math.sqrt(gaussian_mean(lambda g: (g.abs() / (g.abs() + eps)) ** 2, rms**2, 100_001))
    assert {1e-7: 0.823, 1e-8: 0.428, 1e-9: 0.087, 1e-10: 0.0099}[rms] == pytest.approx(predicted, abs=1e-3)
    torch.manual_seed(0)
    model = nn.Linear(N, N, bias=False)
    gradient = rms * torch.randn(N, N, dtype=torch.float64)
    seen = see(
        model, torch.eye(N), loss=lambda out, batch: (out * gradient.T).sum(), num_steps=1, optimizer="adam", lr=lr
    )
    update = seen.parameter("weight", column="update_norm") / N
    assert update / lr == pytest.approx(predicted, rel=4 / N)


def test_layer_norm_backward_energy() -> None:
    """[26] LN: E |J^T g|^2 = |g|^2 (n - 2) / (n sigma^2)."""
    n, sigma = 64, 2.0
    torch.manual_seed(0)
    x = sigma * nn.functional.layer_norm(torch.randn(2048, n, dtype=torch.float64), (n,), eps=0.0)
    profile = see(Stack(n, [plain_norm(n)]), x).profile()
    factor = 10 ** (2 * (profile[0] - profile[1]))
    predicted = (n - 2) / (n * sigma**2)
    assert factor == pytest.approx(predicted, rel=4 * math.sqrt(2 * 2 / (2048 * n)) / n + 2e-3)


@pytest.mark.parametrize("rank", [64, 16, 4])
def test_cotangent_spread(rank: int) -> None:
    """[27] sd over v of log10 |J^T v| = 0.307 / sqrt(PR), v Gaussian; kappa_J = N / PR on the same maps."""
    n = 64
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=generator))[0]
    jacobian = basis[:, :rank] @ basis[:rank, :]
    v = torch.randn(4000, n, dtype=torch.float64, generator=generator)
    spread = float(torch.log10(torch.linalg.vector_norm(v @ jacobian, dim=1)).std())
    singular = torch.linalg.svdvals(jacobian)
    ratio = float((singular**2).sum() ** 2 / (singular**4).sum())
    assert spread == pytest.approx(0.307 / math.sqrt(ratio), rel=0.03 + 0.5 / ratio)
    x = torch.randn(64, n, dtype=torch.float64, requires_grad=True)
    found = anisotropy(StreamEnd.of(x), StreamEnd.of(x @ jacobian.T), generator, 32)
    assert found.kappa == pytest.approx(n / ratio, rel=0.15)
