"""Streams that mix by matrices computed from them: dynamic hyper-connections, in the two ways they are written."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gradscope.probe import measure
from gradscope.probe.settings import ProbeSettings
from gradscope.target.subject import Origin, Subject

STREAMS, WIDTH, LAYERS = 4, 16, 5


class Connection(nn.Module):
    """Mix N streams into N + 1, the first of which the branch reads (Zhu 2024, algorithm 2); or read and mix apart."""

    def __init__(self, number: int, *, together: bool) -> None:
        super().__init__()
        read = torch.zeros(STREAMS, 1)
        read[number % STREAMS] = 1.0
        self.alpha = nn.Parameter(torch.cat([read, torch.eye(STREAMS)], dim=1))
        self.beta = nn.Parameter(torch.ones(STREAMS))
        self.alpha_of = nn.Parameter(torch.zeros(WIDTH, STREAMS + 1))
        self.norm, self.branch_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.branch = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        self.together = together

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        alpha = self.alpha + 0.01 * torch.tanh(self.norm(h) @ self.alpha_of)
        if self.together:
            mixed = alpha.transpose(-1, -2) @ h
            read, carried = mixed[..., 0, :], mixed[..., 1:, :]
        else:
            read = torch.einsum("btn,btnd->btd", alpha[..., 0], h)
            carried = torch.einsum("btnm,btnd->btmd", alpha[..., 1:], h)
        return torch.einsum("btd,n->btnd", self.branch(self.branch_norm(read)), self.beta) + carried


class Net(nn.Module):
    def __init__(self, *, together: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, WIDTH)
        self.layers = nn.ModuleList(Connection(number, together=together) for number in range(LAYERS))
        self.head = nn.Linear(WIDTH, 20)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        h = self.embed(ids).unsqueeze(2).repeat(1, 1, STREAMS, 1)
        for layer in self.layers:
            h = layer(h)
        return self.head(h.sum(2))


class Attention(nn.Module):
    """No residual: a weighted mean of the tokens, and one of their projections, by weights computed from them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            q, k, v = layer(x), layer(x), layer(x)
            x = torch.softmax(q @ k.mT, dim=-1) @ v
        return x


def sites(model: nn.Module, batch: torch.Tensor) -> int:
    made = Origin("made for the test")
    subject = Subject(model, [(batch,)], lambda output, _: output.square().mean(), "net", made, made)
    recording = measure(subject, ProbeSettings(num_steps=1, watched_steps=(0,), jacobian=False))
    return sum(recording.tables["sites"]["counted"])


@pytest.mark.parametrize("together", [True, False])
def test_mixed_streams_are_skips(together):
    torch.manual_seed(0)
    assert sites(Net(together=together), torch.randint(20, (4, 8))) == LAYERS


def test_attention_is_no_skip():
    torch.manual_seed(0)
    assert sites(Attention(), torch.randn(2, 6, WIDTH)) == 0
