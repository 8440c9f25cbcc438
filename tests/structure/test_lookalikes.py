"""Sums that look like residual additions and are none."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.structure.watching import structure_of

D = 8


class Net(nn.Module):
    """Some layers, and a forward that uses them on a stream of shape (batch, tokens, width)."""

    def __init__(self, step: Callable[[Net, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.inp, self.out = nn.Linear(5, D), nn.Linear(D, 3)
        self.a, self.b, self.c, self.d = (nn.Linear(D, D) for _ in range(4))
        self.narrow, self.wide = nn.Linear(D, 2, bias=False), nn.Linear(2, D, bias=False)
        self.conv3, self.conv1 = nn.Conv1d(D, D, 3, padding=1), nn.Conv1d(D, D, 1)
        self.bn1, self.bn2, self.bn3 = (nn.BatchNorm1d(D) for _ in range(3))
        self.position = nn.Parameter(torch.randn(4, D))
        self.table = nn.Embedding(10, 4)
        self.skip = nn.Parameter(torch.ones(D))
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.step(self, self.inp(x)))


def rotary(m: Net, x: torch.Tensor) -> torch.Tensor:
    q = m.a(x)
    angles = torch.arange(4.0)[:, None] * torch.ones(D)
    turned = torch.cat([-q[..., D // 2 :], q[..., : D // 2]], -1)
    return q * angles.cos() + turned * angles.sin()


def gelu_by_hand(_: Net, x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def attention_with_bias(m: Net, x: torch.Tensor) -> torch.Tensor:
    bias = m.table(torch.arange(4)) + torch.full((4, 4), -9.0).triu(1)
    for _ in range(2):  # the same bias in every layer
        scores = m.a(x) @ m.b(x).mT / D**0.5 + bias
        x = torch.tanh(m.d(scores.softmax(-1) @ m.c(x)))
    return x


def disentangled_attention(m: Net, x: torch.Tensor) -> torch.Tensor:
    q = m.a(x)
    scores = q @ m.b(x).mT + q @ m.b(m.position).mT
    return scores.softmax(-1) @ m.c(x)


def layer_norm_by_hand(m: Net, x: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return m.skip * centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() + m.position[0]


def response_norm(m: Net, x: torch.Tensor) -> torch.Tensor:
    """Global response normalisation of ConvNeXt-V2."""
    size = x.norm(dim=1, keepdim=True)
    return x + m.skip * (x * size / (size.mean(-1, keepdim=True) + 1e-6)) + m.position[0]


def scan(m: Net, x: torch.Tensor) -> torch.Tensor:
    """A selective state space: state, output and the direct term D x."""
    u, delta, b, c = F.silu(m.a(x)), F.softplus(m.b(x)), m.c(x), m.d(x)
    state = torch.zeros(len(x), D)
    outputs = []
    for t in range(x.shape[1]):
        state = torch.exp(-delta[:, t]) * state + delta[:, t] * b[:, t] * u[:, t]
        outputs.append((state * c[:, t]).sum(-1, keepdim=True) * torch.ones(D))
    return torch.stack(outputs, 1) + m.skip * u


def reparameterised(m: Net, x: torch.Tensor) -> torch.Tensor:
    y = x.mT
    return torch.relu(m.bn1(m.conv3(y)) + m.bn2(m.conv1(y)) + m.bn3(y)).mT


def pyramid(m: Net, x: torch.Tensor) -> torch.Tensor:
    """Lateral and top-down maps of a feature pyramid."""
    fine = torch.relu(m.conv3(x.mT))
    coarse = torch.relu(m.bn1(m.conv3(F.max_pool1d(fine, 2))))
    return (m.conv1(fine) + F.interpolate(m.conv1(coarse), scale_factor=2)).mT


def recurrent_cell(m: Net, x: torch.Tensor) -> torch.Tensor:
    state = torch.zeros(len(x), D)
    states = []
    for t in range(x.shape[1]):
        state = torch.tanh(m.a(x[:, t]) + m.b(state))
        states.append(state)
    return torch.stack(states, 1)


def lstm_by_hand(m: Net, x: torch.Tensor) -> torch.Tensor:
    h = c = torch.zeros(len(x), D)
    for t in range(x.shape[1]):
        z = x[:, t] + h
        c = torch.sigmoid(m.a(z)) * c + torch.sigmoid(m.b(z)) * torch.tanh(m.c(z))
        h = torch.sigmoid(m.d(z)) * torch.tanh(c)
    return h[:, None]


def gru_by_hand(m: Net, x: torch.Tensor) -> torch.Tensor:
    h = torch.zeros(len(x), D)
    for t in range(x.shape[1]):
        z = torch.sigmoid(m.a(x[:, t] + h))
        h = (1 - z) * h + z * torch.tanh(m.b(x[:, t]) + m.c(h))
    return h[:, None]


def res2net(m: Net, x: torch.Tensor) -> torch.Tensor:
    """Hierarchical sums of the splits of one tensor."""
    first, second, third, fourth = torch.relu(m.a(x)).split(2, -1)
    y = torch.relu(F.linear(first + second, m.narrow.weight[:, :2]))
    z = torch.relu(F.linear(y + third, m.narrow.weight[:, 2:4]))
    return torch.cat([first, y, z, fourth], -1)


def value_from_position_of_content(m: Net, x: torch.Tensor) -> torch.Tensor:
    """A position computed from the content, added for query and key only; the stream goes on without it."""
    position = m.b(torch.relu(m.a(x)))
    q = k = x + position
    return F.layer_norm(x + m.d((q @ k.mT).softmax(-1) @ m.c(x)), (D,))


LOOKALIKES: dict[str, tuple[Callable[[Net, torch.Tensor], torch.Tensor], int]] = {
    "position": (lambda m, x: x + m.position, 0),
    "noise": (lambda m, x: m.a(x + 0.1 * torch.randn_like(x)), 0),
    "bias": (lambda m, x: m.a(x) + m.skip, 0),
    "rotary embedding": (rotary, 0),
    "GELU": (gelu_by_hand, 0),
    "scores with bias and mask": (attention_with_bias, 0),
    "disentangled attention": (disentangled_attention, 0),
    "layer norm by hand": (layer_norm_by_hand, 0),
    "global response norm": (response_norm, 0),
    "low-rank adapter": (lambda m, x: torch.relu(m.a(x) + 2 * m.wide(m.narrow(x))), 0),
    "low-rank adapter of dropout": (lambda m, x: torch.relu(m.a(x) + m.wide(m.narrow(F.dropout(x, 0.1)))), 0),
    "sum of branches": (lambda m, x: m.b(torch.relu(m.a(x))) + m.d(torch.relu(m.c(x))), 0),
    "gated expert and shared expert": (
        lambda m, x: m.d(F.silu(m.a(x)) * m.b(x)) + m.b(F.silu(m.c(x)) * m.a(x)), 0,
    ),
    "FiLM": (lambda m, x: x * (1 + m.a(x.detach())) + m.b(x.detach()), 0),
    "heads": (lambda m, x: 0.5 * (m.a(x) + m.b(x)), 0),
    "difference": (lambda m, x: m.b(torch.relu(m.a(x))) - x, 0),
    "trend": (lambda m, x: m.a(x - F.avg_pool1d(x.mT, 3, 1, 1).mT), 0),
    "snake": (lambda m, x: m.a(x + torch.sin(m.skip * x) ** 2 / m.skip), 0),
    "state space": (scan, 0),
    "re-parameterised layer": (reparameterised, 0),
    "feature pyramid": (pyramid, 0),
    "recurrent cell": (recurrent_cell, 0),
    "LSTM": (lstm_by_hand, 0),
    "GRU": (gru_by_hand, 0),
    "Res2Net": (res2net, 0),
    "position computed from content": (value_from_position_of_content, 1),
    "moving average of weights": (lambda m, x: F.linear(x, 0.9 * m.a.weight + 0.1 * m.b.weight), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOKALIKES)
def test_is_not_counted(name: str) -> None:
    step, expected = LOOKALIKES[name]
    torch.manual_seed(0)
    assert structure_of(Net(step), torch.randn(6, 4, 5)).num_residual == expected


def test_sum_of_losses() -> None:
    model = Net(lambda m, x: torch.relu(m.a(x)))
    structure = structure_of(model, torch.randn(6, 4, 5), loss=lambda y: y.pow(2).mean() + 0.1 * torch.tanh(y).sum())
    assert structure.num_residual == 0


def test_recurrent_state_is_reported() -> None:
    structure = structure_of(Net(gru_by_hand), torch.randn(6, 4, 5))
    assert structure.sites
    assert all(site.recurrent and not site.counted for site in structure.sites)


def test_gradient_penalty_adds_nothing() -> None:
    """Sums that autograd makes on its own, in a graph of gradients, are no additions of the model."""

    class Critic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inp, self.f, self.out = nn.Linear(5, D), nn.Linear(D, D), nn.Linear(D, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.detach().requires_grad_()
            h = self.inp(x)
            score = self.out(h + torch.tanh(self.f(h))).sum()
            (slope,) = torch.autograd.grad(score, x, create_graph=True)
            return score + (slope.norm() - 1) ** 2

    assert structure_of(Critic(), torch.randn(6, 5), loss=lambda loss: loss).num_residual == 1
