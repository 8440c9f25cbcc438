"""Networks that feed every block the input again: inner sums are no sites, and are told in linear time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from gradscope.probe.structure.chain import Link, follow
from gradscope.probe.structure.graph import Graph
from tests.structure.watching import structure_of

D = 8


def again(m: nn.ModuleDict, x: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    return x + m["f"](m["norm"](x + first))


def again_behind_a_norm(m: nn.ModuleDict, x: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    return x + m["f"](torch.tanh(m["norm"](x) + first))


def again_between_scales(m: nn.ModuleDict, x: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    return 0.9 * x + 0.1 * m["f"](torch.tanh(0.5 * x + first))


def again_beside_a_gate(m: nn.ModuleDict, x: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    gate = torch.sigmoid(m["norm"](x))
    return gate * x + (1 - gate) * m["f"](x + first)


def again_projected(m: nn.ModuleDict, x: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    return x + m["f"](m["norm"](x + m["again"](first)))


def again_before_a_norm(m: nn.ModuleDict, x: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    norm: torch.Tensor = m["norm"](x + m["f"](x + first))
    return norm


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, D))


class Again(nn.Module):
    """Every block is given the embedded input again."""

    def __init__(self, num_blocks: int, step: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.inp, self.out, self.step = nn.Linear(D, D), nn.Linear(D, 3), step
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"norm": nn.LayerNorm(D), "again": nn.Linear(D, D), "f": mlp()}) for _ in range(num_blocks)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = first = self.inp(x)
        for block in self.blocks:
            x = self.step(block, x, first)
        return self.out(x)


SIZES = (20, 80)
STEPS = [again, again_behind_a_norm, again_between_scales, again_beside_a_gate, again_projected, again_before_a_norm]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_search_is_linear_where_the_input_goes_to_each_block_again(
    step: Callable[..., torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block's inner sum has met the stream last at its beginning; nobody goes back there block by block."""
    steps = dict.fromkeys(SIZES, 0)

    def counted(graph: Graph, link: Link, *rest: Any) -> Iterator[Link]:
        steps[num_blocks] += 1
        return follow(graph, link, *rest)

    monkeypatch.setattr("gradscope.probe.structure.meeting.follow", counted)
    for num_blocks in SIZES:
        structure = structure_of(Again(num_blocks, step), torch.randn(2, D))
        assert structure.num_residual == num_blocks
    assert steps[SIZES[1]] <= 1.1 * SIZES[1] / SIZES[0] * steps[SIZES[0]]


def test_search_is_linear_where_each_block_multiplies_the_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deep and cross network (Wang 2021): x + x0 * f(x)."""
    looked = dict.fromkeys(SIZES, 0)

    def crossed(m: nn.ModuleDict, x: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        return first * m["again"](x) + x

    def counted(graph: Graph, link: Link, *rest: Any) -> Iterator[Link]:
        looked[num_blocks] += 1
        return follow(graph, link, *rest)

    monkeypatch.setattr("gradscope.probe.structure.meeting.follow", counted)
    for num_blocks in SIZES:
        structure = structure_of(Again(num_blocks, crossed), torch.randn(2, D))
        assert structure.num_residual == num_blocks
    assert looked[SIZES[1]] <= 1.1 * SIZES[1] / SIZES[0] * looked[SIZES[0]] + SIZES[1]


def test_an_input_added_to_the_stream_in_each_block_is_no_branch() -> None:
    def added(m: nn.ModuleDict, x: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        return x + m["f"](m["norm"](x)) + 0.1 * first

    structure = structure_of(Again(6, added), torch.randn(2, D))
    assert [site.branches for site in structure.sites] == [(f"blocks.{i}.f",) for i in range(6)]


def test_a_long_loop_over_time_is_told_without_a_confession() -> None:
    class Scan(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.into, self.rate, self.out = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            value, rate, state, states = self.into(x), self.rate(x), torch.zeros(len(x), D), []
            for t in range(x.shape[1]):
                state = torch.exp(-rate[:, t].square()) * state + rate[:, t] * value[:, t]
                states.append(state)
            return self.out(torch.stack(states, 1))

    structure = structure_of(Scan(), torch.randn(2, 600, D))
    assert structure.num_residual == 0
    assert not structure.confessions
