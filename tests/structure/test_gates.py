"""What a gate of the skip sends back to the stream counts with the branch, wherever the gate is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from gradscope import variants
from tests.structure.watching import explicit_flows, watched

D = 8


class Gated(nn.Module):
    """Blocks of three layers, joined in a way of their own."""

    def __init__(self, join: Callable[[nn.ModuleDict, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.stem, self.head, self.join = nn.Linear(D, D), nn.Linear(D, 2), join
        layers = {"work": nn.Linear, "carry": nn.Linear, "write": nn.Linear}
        self.blocks = nn.ModuleList(
            nn.ModuleDict({**{name: kind(D, D) for name, kind in layers.items()}, "norm": nn.LayerNorm(D)})
            for _ in range(2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = self.join(block, x)
        return self.head(x)


def two_gates(m: nn.ModuleDict, x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(m["carry"](x)) + torch.sigmoid(m["write"](x)) * torch.tanh(m["work"](x))


def behind_one_norm(m: nn.ModuleDict, x: torch.Tensor) -> torch.Tensor:
    h = m["norm"](x)
    return x * torch.sigmoid(m["carry"](h)) + torch.sigmoid(m["write"](h)) * torch.tanh(m["work"](h))


def far_from_the_branch(m: nn.ModuleDict, x: torch.Tensor) -> torch.Tensor:
    gate = torch.sigmoid(m["carry"](x))
    return x * (1 - gate).clamp(0.01, 0.99).sqrt().square() + gate * torch.tanh(m["work"](x))


@pytest.mark.parametrize("join", [two_gates, behind_one_norm, far_from_the_branch], ids=lambda join: join.__name__)
def test_flows_of_gated_blocks_are_those_of_autograd(join: Callable[..., torch.Tensor]) -> None:
    seen = watched(Gated(join).double(), torch.randn(3, 4, D, dtype=torch.float64), retain=True)
    assert seen.kinds == ["gated", "gated"]
    truths = explicit_flows(seen.structure, seen.loss)
    for flow, plan, truth in zip(seen.flows, seen.structure.plans, truths, strict=True):
        assert plan is not None
        assert plan.inexact is None
        assert [seen.number(h) for h in (flow.grad, flow.skip, flow.branch, flow.dot)] == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize("name", ["hyper-connections", "hyper-connections-static", "mhc"])
def test_hyper_connections_are_pre_norm_and_exact(name: str) -> None:
    subject = variants.subject(name, {"layers": 2}, 0)
    subject.model.double()
    batch = next(iter(subject.batches))

    class Called(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = subject.model

        def forward(self) -> Any:
            return subject.call(batch)

    seen = watched(Called(), loss=lambda output: subject.loss(output, batch), retain=True)
    assert [site.placement for site in seen.counted] == ["pre"] * 4
    for flow, truth in zip(seen.flows, explicit_flows(seen.structure, seen.loss), strict=True):
        assert [seen.number(h) for h in (flow.grad, flow.skip, flow.branch)] == pytest.approx(truth[:3], rel=1e-7)
