"""Exact identities in float64, from the numbers the probe records.

Where an identity speaks of inner products it is put into norms: <W, dW> follows from |W| before and after a step of
SGD, and the sum of a gradient's elements is the gradient of one shift that all of them share.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.laws.measuring import Apply, Residual, Seen, Stack, close, linear, plain_norm, see

LR = 0.5
N = 32


def inner_product(seen: Seen, name: str) -> float:
    """<W, dW> from |W - lr dW|^2 = |W|^2 - 2 lr <W, dW> + lr^2 |dW|^2."""
    before, after = (seen.parameter(name, step, "weight_norm") for step in (0, 1))
    return (before**2 + (LR * seen.parameter(name)) ** 2 - after**2) / (2 * LR)


def two_steps(model: nn.Module, x: Tensor, **settings: object) -> Seen:
    return see(model, x, num_steps=2, watched_steps=(0, 1), optimizer="sgd", lr=LR, **settings)


def test_e1_euler() -> None:
    """Bias-free ReLU network: <W_l, dW_l> is the same for every layer."""
    torch.manual_seed(0)
    model = nn.Sequential(*(layer for _ in range(6) for layer in (linear(N, 2.0), nn.ReLU())))
    seen = two_steps(model, torch.randn(4, N))
    products = [inner_product(seen, f"{2 * i}.weight") for i in range(6)]
    assert products == [close(products[0], 1e-9)] * 6
    assert abs(products[0]) > 1e-3


class Normed(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.norm, self.head = linear(N, 1.0), plain_norm(N), linear(N, 1.0)
        self.double()
        self.inner.weight.data *= factor

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.inner(x)))


def test_e2_weight_before_a_norm() -> None:
    """<W, dW> = 0 and dW(3 W) = dW(W) / 3."""
    seen = two_steps(Normed(1.0), torch.randn(4, N, generator=torch.Generator().manual_seed(1)))
    scale = seen.parameter("inner.weight") * seen.parameter("inner.weight", column="weight_norm")
    assert inner_product(seen, "inner.weight") / scale == close(0)
    torch.manual_seed(5)
    x, readout = torch.randn(4, N), torch.randn(4, N, dtype=torch.float64)
    one, three = (
        see(Normed(factor), x, loss=lambda out, batch: (out * readout).sum()).parameter("inner.weight")
        for factor in (1.0, 3.0)
    )
    assert three == close(one / 3)


class ShiftScale(nn.Module):
    """x * scale + shift, one number each: their gradients are sum_i g_i x_i and sum_i g_i."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(())), nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.shift


@pytest.mark.parametrize("norm", [plain_norm(N), nn.RMSNorm(N, eps=0.0, elementwise_affine=False)])
def test_e3_norm_backward(norm: nn.Module) -> None:
    """LN's input gradient sums to 0 and is orthogonal to xhat; RMSNorm's is orthogonal to x only."""
    torch.manual_seed(0)
    seen = see(nn.Sequential(ShiftScale(), norm), torch.randn(1, N))
    assert seen.parameter("0.scale") == close(0)
    if isinstance(norm, nn.LayerNorm):
        assert seen.parameter("0.shift") == close(0)
    else:
        assert seen.parameter("0.shift") > 1e-3


class RowShift(nn.Module):
    def __init__(self, rows: int) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(rows, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.shift


def test_e4_cross_entropy() -> None:
    """The logit gradient of cross-entropy sums to 0 in every row."""
    torch.manual_seed(0)
    target = torch.randint(0, 7, (5,))
    seen = see(RowShift(5), torch.randn(5, 7), loss=lambda out, batch: F.cross_entropy(out, target))
    assert seen.parameter("shift") == close(0)
    assert seen.grad("") > 0.1


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_e5_residual_add(alpha: float) -> None:
    """g_x = g_skip + g_branch; g_skip = alpha g_y, bit for bit at alpha = 1."""
    torch.manual_seed(0)
    residual = Residual(nn.Sequential(linear(N, 1.0), nn.Tanh()), skip=alpha)
    seen = see(Stack(N, [linear(N, 1.0), residual]), torch.randn(4, N))
    (site,) = seen.sites()
    skip, branch, cosine = site["skip_grad_norm"], site["branch_grad_norm"], site["cosine"]
    if alpha == 1.0:
        assert skip == site["grad_norm"]
    assert skip == close(alpha * site["grad_norm"])
    assert skip**2 + branch**2 + 2 * cosine * skip * branch == close(seen.grad("blocks.0") ** 2)


def test_e6_one_sample() -> None:
    """One sample: |dW| = |g_out| |x_in| and |db| = |g_out|."""
    torch.manual_seed(0)
    seen = see(Stack(N, [nn.Linear(N, N), nn.Tanh()]), torch.randn(1, N))
    assert seen.parameter("blocks.0.weight") == close(seen.grad("blocks.0") * seen.forward("start"))
    assert seen.parameter("blocks.0.bias") == close(seen.grad("blocks.0"))


def test_e7_deep_linear() -> None:
    """Deep linear: W_{l+1}^T dW_{l+1} = dW_l W_l^T, with dW from the probe's own step of SGD."""
    torch.manual_seed(0)
    model = nn.Sequential(*(linear(N, 1.0) for _ in range(4))).double()
    before = [layer.weight.detach().clone() for layer in model]
    seen = see(model, torch.randn(8, N), optimizer="sgd", lr=LR, keep_steps=True)
    grads = [(old - layer.weight.detach()) / LR for old, layer in zip(before, model, strict=True)]
    for i in range(3):
        assert float(torch.linalg.vector_norm(grads[i])) == pytest.approx(seen.parameter(f"{i}.weight"), rel=1e-10)
        left, right = before[i + 1].T @ grads[i + 1], grads[i] @ before[i].T
        assert torch.allclose(left, right, rtol=1e-10, atol=1e-10 * float(left.abs().max()))


def test_e8_repeated_batch() -> None:
    """Mean loss, batch repeated k times: activation gradients scale by 1 / sqrt k, parameter gradients stay."""
    torch.manual_seed(0)
    model = Stack(N, [linear(N, 1.0), nn.Tanh(), linear(N, 1.0)]).double()
    x = torch.randn(4, N)
    once, four_times = (see(model, batch, loss=lambda out, b: out.square().mean()) for batch in (x, x.repeat(4, 1)))
    assert four_times.grad("blocks.0") == close(once.grad("blocks.0") / 2)
    assert four_times.parameter("blocks.0.weight") == close(once.parameter("blocks.0.weight"))


def test_e9_branch_that_cancels() -> None:
    """f(x) = -x: the sum x + f(x) passes no gradient to x at all."""
    torch.manual_seed(0)
    minus = nn.Linear(N, N, bias=False)
    minus.weight.data = -torch.eye(N)
    seen = see(Stack(N, [Apply(torch.tanh), Residual(minus)]), torch.randn(4, N))
    assert seen.grad("blocks.0") == 0.0
    assert seen.grad("blocks.1") > 1.0
