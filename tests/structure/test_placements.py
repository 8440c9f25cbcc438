"""Where a block normalises: norms beside one another, behind a guard, of joined tokens, shared with the shortcut."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.structure.watching import structure_of

D = 8


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Linear(D, D))


class RMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(D))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Parallel(nn.Module):
    """One sum, two branches, each with a norm of its own that is written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([RMSNorm(), RMSNorm()])
        self.f, self.g = mlp(), mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + (self.f(self.norms[0](x)) + self.g(self.norms[1](x)))


class Post(nn.Module):
    def __init__(self, bounds: dict[str, float]) -> None:
        super().__init__()
        self.f, self.norm, self.bounds = mlp(), nn.LayerNorm(D), bounds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm((x + self.f(x)).clamp(**self.bounds))


class ClassAttention(nn.Module):
    """A class token reads itself beside the patches."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(D), nn.MultiheadAttention(D, 2, batch_first=True)

    def forward(self, token: torch.Tensor, patches: torch.Tensor) -> torch.Tensor:
        everything = self.norm(torch.cat([token, patches], 1))
        return token + self.attention(everything[:, :1], everything, everything)[0]


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(D, D), nn.Linear(D, 3)
        self.blocks = nn.ModuleList([ClassAttention(), ClassAttention()])
        self.token = nn.Parameter(torch.randn(1, 1, D))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches, token = self.embed(x), self.token.expand(len(x), 1, D)
        for block in self.blocks:
            token = block(token, patches)
        return self.head(token)


class PreActivation(nn.Module):
    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.norm, self.act = nn.BatchNorm1d(width), nn.ReLU()
        self.f = nn.Sequential(nn.Linear(width, out), nn.BatchNorm1d(out), nn.ReLU(), nn.Linear(out, out))
        self.shortcut = nn.Linear(width, out) if width != out else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.act(self.norm(x))
        return self.f(normed) + (x if self.shortcut is None else self.shortcut(normed))


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix, self.norm = nn.Linear(2 * D, 2 * D), nn.LayerNorm(D)

    def forward(self, x: torch.Tensor, work: torch.Tensor) -> torch.Tensor:
        one, other = torch.sigmoid(self.mix(torch.cat([x, work], -1))).chunk(2, -1)
        return self.norm(one * x + other * work)


class Gated(nn.Module):
    """A sum of the same name as a concatenation beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.f, self.gate = mlp(), Gate()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gate(x, self.f(x))


def placements(*blocks: nn.Module, x: Any = None) -> list[str]:
    net = nn.Sequential(nn.Linear(D, D), *blocks, nn.Linear(D, 3))
    structure = structure_of(net, torch.randn(6, 5, D) if x is None else x)
    return [site.placement for site in structure.sites if site.counted]


def test_each_branch_may_have_a_norm_of_its_own() -> None:
    assert placements(Parallel(), Parallel()) == ["pre"] * 2


@pytest.mark.parametrize(
    ("bounds", "placement"),
    [({"min": -64504.0, "max": 64504.0}, "post"), ({"max": 65504.0}, "post"), ({"min": -1.0, "max": 1.0}, "none"),
     ({"min": 0.0}, "none")],
)  # fmt: skip
def test_a_guard_against_overflow_in_front_of_a_norm(bounds: dict[str, float], placement: str) -> None:
    assert placements(*(Post(bounds) for _ in range(3))) == [placement] * 3


def test_a_token_beside_others_is_normalised_with_them() -> None:
    sites = structure_of(Classifier(), torch.randn(6, 5, D)).sites
    assert [site.placement for site in sites if site.counted] == ["pre"] * 2


@pytest.mark.parametrize(("both", "placement"), [(True, "pre"), (False, "none")])
def test_all_parts_have_to_be_normalised(both: bool, placement: str) -> None:
    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(D // 2), nn.LayerNorm(D // 2) if both else nn.Identity()])
            self.f = mlp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            halves = zip(self.norms, x.chunk(2, -1), strict=True)
            return x + self.f(torch.cat([norm(half) for norm, half in halves], -1))

    assert placements(Halves(), Halves()) == [placement] * 2


def test_a_norm_shared_by_branch_and_shortcut_is_the_branch_s_where_it_is_in_the_other_blocks() -> None:
    blocks = nn.Sequential(PreActivation(D, D), PreActivation(D, 12), PreActivation(12, 12), PreActivation(12, D))
    assert placements(blocks, x=torch.randn(6, D)) == ["pre"] * 4


def test_a_post_norm_stays_one_in_front_of_a_shortcut_with_a_layer() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f, self.shortcut, self.norm = mlp(), nn.Linear(D, D), nn.LayerNorm(D)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(self.shortcut(x) + self.f(x))

    assert placements(Block(), Block(), Block()) == ["post"] * 3


def test_a_concatenation_says_nothing_of_the_sum_beside_it() -> None:
    assert placements(Gated(), Gated()) == ["post"] * 2


def test_a_layer_with_as_many_weights_as_there_are_tokens_weighs_no_streams() -> None:
    class Parts(nn.Module):
        """Works on halves of the channels; the convolutions' 4 x 4 weights are as many as 2 x 8 tokens."""

        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList([nn.Conv1d(4, 4, 1, bias=False) for _ in range(2)])
            self.norms = nn.ModuleList([nn.BatchNorm1d(4) for _ in range(2)])
            self.out = nn.Conv1d(8, 8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            halves = zip(self.convs, self.norms, x.chunk(2, 1), strict=True)
            return x + self.out(torch.cat([norm(conv(half)) for conv, norm, half in halves], 1))

    net = nn.Sequential(nn.Conv1d(8, 8, 1), Parts(), nn.ReLU(), Parts(), nn.Conv1d(8, 3, 1))
    assert {site.placement for site in structure_of(net, torch.randn(2, 8, 2)).sites} == {"none"}


def test_a_part_of_what_a_norm_gives_is_normalised() -> None:
    class Wider(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.width = width
            self.f = nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, width + 2), nn.BatchNorm1d(width + 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            work = self.f(x)
            return torch.cat([x + work[:, : self.width], work[:, self.width :]], 1)

    net = nn.Sequential(nn.Linear(D, D), Wider(D), nn.ReLU(), Wider(D + 2), nn.ReLU(), nn.Linear(D + 4, 3))
    assert [s.placement for s in structure_of(net, torch.randn(6, D)).sites if s.counted] == ["output"] * 2


def test_a_norm_behind_a_layer_that_works_on_a_part_is_not_in_front_of_the_branch() -> None:
    """Some of the channels are mixed, the others handed on beside them, and all are normalised then (InceptionNeXt)."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix, self.norm, self.mlp = nn.Linear(D // 2, D // 2), nn.LayerNorm(D), mlp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept, mixed = x.chunk(2, -1)
            return x + self.mlp(self.norm(torch.cat([kept, self.mix(mixed)], -1)))

    structure = structure_of(nn.Sequential(nn.Linear(5, D), Mixed(), Mixed(), nn.Linear(D, 3)), torch.randn(4, 5))
    assert [site.placement for site in structure.sites] == ["none"] * 2
