"""Reversible networks: an autograd function runs the blocks without a graph and rebuilds them in its backward."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import gradscope
from tests.probe.oracle import check

D, BLOCKS = 8, 3
LIKE = ["name", "module", "kind", "counted", "placement", "branches"]
NORMS = ["skip_norm", "branch_norm", "out_norm"]


def half() -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(D), nn.Linear(D, D), nn.GELU(), nn.Linear(D, D))


class Block(nn.Module):
    """`y1 = x1 + f(x2)`, `y2 = x2 + g(y1)` (Gomez 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.f, self.g = half(), half()

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        a = a + self.f(b)
        return a, b + self.g(a)

    def back(self, a: Tensor, b: Tensor, grad_a: Tensor, grad_b: Tensor) -> tuple[Tensor, ...]:
        """The inputs and their gradients, from the outputs and theirs."""
        b, grad_a = undone(self.g, a, b, grad_a, grad_b)
        a, grad_b = undone(self.f, b, a, grad_b, grad_a)
        return a, b, grad_a, grad_b


def undone(branch: Any, read: Tensor, made: Tensor, grad_read: Tensor, grad_made: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        read = read.detach().requires_grad_()
        added = branch(read)
    added.backward(grad_made)
    assert read.grad is not None
    return made - added.detach(), grad_read + read.grad


class Reversible(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, blocks: list[Block], cut: Any) -> Tensor:
        a, b = cut(x)
        for block in blocks:
            a, b = block(a, b)
        ctx.blocks = blocks
        ctx.save_for_backward(a, b)
        return torch.cat([a, b], -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        grads = grad.chunk(2, -1)
        state: Any = (*ctx.saved_tensors, *grads)
        for block in reversed(ctx.blocks):
            state = block.back(*state)
        return torch.cat(state[2:], -1), None, None


CUTS = {
    "chunk": lambda x: x.chunk(2, -1),
    "split": lambda x: torch.split(x, D, dim=2),
    "index": lambda x: (x[..., :D], x[:, :, D:]),
    "unbind": lambda x: x.unflatten(-1, (2, D)).unbind(-2),
}


class Net(nn.Module):
    def __init__(self, cut: str = "chunk", *, reversible: bool = True) -> None:
        super().__init__()
        self.inp, self.out = nn.Linear(5, 2 * D), nn.Linear(2 * D, 3)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.cut, self.reversible = CUTS[cut], reversible

    def forward(self, x: Tensor) -> Tensor:
        x, blocks = self.inp(x), list(self.blocks)
        if self.reversible:
            x = Reversible.apply(x, blocks, self.cut)
        else:
            a, b = self.cut(x)
            for block in blocks:
                a, b = block(a, b)
            x = torch.cat([a, b], -1)
        return self.out(torch.tanh(x))


def inspected(**how: Any) -> dict[str, pd.DataFrame]:
    torch.manual_seed(0)
    model = Net(**how)
    x = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(1))
    return gradscope.inspect(model, (x,), seed=0).recording.to_frames()


@pytest.mark.parametrize("cut", CUTS)
def test_the_additions_inside_are_those_of_the_plain_network(cut: str) -> None:
    plain, seen = inspected(cut=cut, reversible=False), inspected(cut=cut)
    assert plain["sites"]["counted"].sum() == 2 * BLOCKS
    pd.testing.assert_frame_equal(seen["sites"][LIKE], plain["sites"][LIKE])
    first = seen["site_stats"].step == 0
    pd.testing.assert_frame_equal(seen["site_stats"][first][NORMS], plain["site_stats"][first][NORMS])
    assert seen["site_stats"]["branch_grad_norm"].isna().all()
    told = seen["confessions"]  # one of the additions, one of the stream
    assert told["why"].str.contains("inside of Reversible, which has a backward of its own").sum() == 2


def test_watching_changes_nothing() -> None:
    """The modules run without a graph in the forward: only what their own passes find is compared."""
    check(Net, lambda model: model(torch.ones(2, 3, 5)).square().mean(), activations=False)


def test_sites_are_written_down_once() -> None:
    assert len(inspected()["sites"]) == 2 * BLOCKS + 1  # and the concatenation
