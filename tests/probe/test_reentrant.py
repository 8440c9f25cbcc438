"""Re-entrant activation checkpointing: the gradients of additions are read where the backward runs segments again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import gradscope

D, BLOCKS = 8, 3
SAME = {
    "sites": ["name", "kind", "placement", "skip_scale", "branch_scale"],
    "stream": ["name", "kind", "site"],
}
FLOWS = ["grad_norm", "skip_grad_norm", "branch_grad_norm", "cosine"]
Run = Callable[[nn.Module, torch.Tensor], torch.Tensor]


class Norm(nn.Module):
    """A norm written by hand, whose weight is what is learned plus one (Gemma)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(D))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1.0 + self.weight.float())


class Block(nn.Module):
    """Two additions, one of them gated and dropped out, the other scaled and normalised, with more added on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.LayerNorm(D), nn.LayerNorm(D), Norm()
        self.a, self.b = nn.Linear(D, D), nn.Linear(D, D)
        self.gate = nn.Parameter(torch.tensor(0.7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = self.first(x).to(x.dtype) + 1.0
        seen = seen + torch.ones_like(seen)  # looks like an addition, on the first step
        x = x + self.gate * F.dropout(self.a(seen), 0.2)
        return torch.stack([x, 0.5 * self.third(F.gelu(self.b(self.second(x))))]).sum(0)


class Stack(nn.Module):
    """Blocks that run as told."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.inp, self.out = nn.Linear(5, D), nn.Linear(D, 3)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.run = run

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inp(x)
        for block in self.blocks:
            x = self.run(block, x)
        return self.out(x)


def plainly(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return block(x)


def again(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(block, x, use_reentrant=True)


def partly(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The first addition is outside of what is checkpointed, its branch inside; the gate stays outside as well."""
    branch = checkpoint(lambda h: F.dropout(block.a(block.first(h) + 1.0 + 1.0), 0.2), x, use_reentrant=True)
    x = x + block.gate * branch
    return checkpoint(
        lambda h: torch.stack([h, 0.5 * block.third(F.gelu(block.b(block.second(h))))]).sum(0), x, use_reentrant=True
    )


def entangled(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A segment that returns the branch and something else that is made of the stream."""
    branch, aside = checkpoint(lambda h: (block.a(block.first(h)), h.mean()), x, use_reentrant=True)
    return (x + branch) * (1.0 + aside)


def nested(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda h: again(block, h), x, use_reentrant=True)


class Mine(torch.autograd.Function):
    """Activation checkpointing written by hand; its backward calls `Tensor.backward`, which modes see."""

    @staticmethod
    def forward(ctx: Any, block: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        ctx.block, ctx.state = block, torch.get_rng_state()
        ctx.save_for_backward(x)
        return block(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[None, torch.Tensor | None]:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad(), torch.random.fork_rng():
            torch.set_rng_state(ctx.state)
            out = ctx.block(x)
        out.backward(grad)
        return None, x.grad


def by_hand(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return Mine.apply(block, x)


def by_hand_nested(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return Mine.apply(lambda h: Mine.apply(block, h), x)


def mixed(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return Mine.apply(lambda h: again(block, h), x)


def inspected(run: Run) -> dict[str, pd.DataFrame]:
    torch.manual_seed(0)
    model = Stack(run)
    x = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(1))
    return gradscope.inspect(model, (x,), seed=0).recording.to_frames()


@pytest.mark.parametrize("run", [again, nested, by_hand, by_hand_nested, mixed])
def test_every_number_is_that_of_the_plain_run(run: Run) -> None:
    bare, seen = inspected(plainly), inspected(run)
    assert len(bare["sites"]) == 2 * BLOCKS
    assert bare["site_stats"][FLOWS].notna().all(axis=None)
    for table, columns in SAME.items():
        pd.testing.assert_frame_equal(seen[table][columns], bare[table][columns])
    pd.testing.assert_frame_equal(seen["site_stats"], bare["site_stats"], check_exact=True)
    pd.testing.assert_frame_equal(seen["stream_stats"], bare["stream_stats"], check_exact=True)
    if run not in (again, nested):  # a pass of its own has no graph in what is not torch's
        assert seen["confessions"]["what"].tolist() == ["jacobian_anisotropy"]
        return
    assert seen["confessions"].empty
    anisotropy = [f["observations"].query("metric == 'jacobian_anisotropy'")["value"].iloc[0] for f in (bare, seen)]
    assert anisotropy[0] == anisotropy[1]


def test_additions_between_segments() -> None:
    """What a segment sends back to the stream is the branch's gradient where the branch alone runs in it."""
    bare, seen = inspected(plainly), inspected(partly)
    pd.testing.assert_frame_equal(seen["site_stats"], bare["site_stats"], check_exact=True)
    assert seen["confessions"].empty


def test_what_is_missed_is_named() -> None:
    seen = inspected(entangled)
    stats = seen["site_stats"][seen["site_stats"].step == 0]
    without = seen["sites"].loc[stats["branch_grad_norm"].isna().to_numpy(), "name"].tolist()
    assert without == [f"+ blocks.{i}.a" for i in range(BLOCKS)]
    assert f"the branch's gradient alone at {', '.join(without)}" in seen["confessions"]["what"].tolist()


class Fickle(nn.Module):
    """A segment that takes its layers, or its source lines, in another order when it runs again."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.inp, self.out = nn.Linear(5, D), nn.Linear(D, 3)
        self.layers = nn.ModuleList(nn.Linear(D, D) for _ in range(2))
        self.how, self.calls = how, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(checkpoint(self.segment, self.inp(x), use_reentrant=True))

    def segment(self, h: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        turned = self.how != "same" and self.calls % 2 == 0
        if turned and self.how == "lines":
            for layer in self.layers:
                h = torch.tanh(layer(h)) + h
            return h
        for layer in reversed(self.layers) if turned else self.layers:
            h = h + torch.tanh(layer(h))
        return h


@pytest.mark.parametrize(("how", "told"), [("same", False), ("order", True), ("lines", True)])
def test_a_segment_that_runs_in_another_way_is_not_matched(how: str, told: bool) -> None:
    torch.manual_seed(0)
    seen = gradscope.inspect(Fickle(how), (torch.randn(4, 6, 5),), seed=0).recording.to_frames()
    assert len(seen["sites"]) == 2
    assert seen["site_stats"]["branch_grad_norm"].isna().all() == told
    assert any("ran them again in another way" in why for why in seen["confessions"]["why"]) == told


def test_a_graph_that_is_gone_through_twice() -> None:
    """The segments run again in each pass; what passes is added up."""

    def stats(run: Run) -> pd.DataFrame:
        torch.manual_seed(0)
        model = Stack(run)
        x = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(1))
        with gradscope.watch(model) as watch:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(2):
                torch.manual_seed(3)
                loss = model(x).square().mean()
                loss.backward(retain_graph=True)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        return watch.recording.to_frames()["site_stats"]

    bare, seen = stats(plainly), stats(again)
    assert bare["branch_grad_norm"].notna().all()
    pd.testing.assert_frame_equal(seen, bare, rtol=1e-6)
