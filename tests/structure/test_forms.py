"""Every form and spelling of a residual addition is found, once, with its kind."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.structure.watching import structure_of

D = 8


def branch() -> nn.Module:
    return nn.Sequential(nn.LayerNorm(D), nn.Linear(D, D), nn.Tanh(), nn.Linear(D, D))


class Block(nn.Module):
    """A block whose forward is given as a function of the module and the stream."""

    def __init__(self, step: Callable[[Block, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.f, self.g = branch(), branch()
        self.gate, self.short = nn.Linear(D, D), nn.Linear(D, D)
        self.learnt = nn.Parameter(torch.full((D,), 0.1))
        self.quantised = torch.ao.nn.quantized.FloatFunctional()
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(self, x)


def in_place(m: Block, x: torch.Tensor) -> torch.Tensor:
    y = m.f(x)
    y += x
    return y


def in_place_on_view(m: Block, x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 1:] += m.f(x)[:, 1:]
    return y


def highway(m: Block, x: torch.Tensor) -> torch.Tensor:
    gate = torch.sigmoid(m.gate(x))
    return gate * m.f(x) + (1 - gate) * x


def gated_recurrent_style(m: Block, x: torch.Tensor) -> torch.Tensor:
    y = m.f(x)
    z = torch.sigmoid(m.gate(x) + m.short(y))
    return (1 - z) * x + z * y


def scatter_of_half(m: Block, x: torch.Tensor) -> torch.Tensor:
    """Stochastic depth on a subset of the samples."""
    rows = torch.arange(len(x) // 2)
    return x.index_add(0, rows, m.f(x[rows]), alpha=2.0)


def nested(m: Block, x: torch.Tensor) -> torch.Tensor:
    y = x + m.f(x)
    return x + 0.2 * (y + m.g(y))


def pooling(m: Block, x: torch.Tensor) -> torch.Tensor:
    n = m.f[0](x)
    return x + (F.avg_pool1d(n.mT, 3, 1, 1).mT - n)


FORMS: dict[str, tuple[Callable[[Block, torch.Tensor], torch.Tensor], list[str]]] = {
    "plus": (lambda m, x: x + m.f(x), ["identity"]),
    "plus, branch first": (lambda m, x: m.f(x) + x, ["identity"]),
    "in place": (in_place, ["identity"]),
    "add_": (lambda m, x: m.f(x).add_(x), ["identity"]),
    "add_ with alpha": (lambda m, x: x.clone().add_(m.f(x), alpha=0.5), ["scaled"]),
    "in place on a view": (in_place_on_view, ["identity"]),
    "torch.add with alpha": (lambda m, x: torch.add(x, m.f(x), alpha=0.1), ["scaled"]),
    "sub": (lambda m, x: x - m.f(x), ["identity"]),
    "operator.add": (lambda m, x: operator.add(x, m.f(x)), ["identity"]),
    "FloatFunctional": (lambda m, x: m.quantised.add(x, m.f(x)), ["identity"]),
    "stack and sum": (lambda m, x: torch.stack([x, m.f(x)]).sum(0), ["identity"]),
    "stack and sum on the last axis": (lambda m, x: torch.stack([m.f(x), x], -1).sum(-1), ["identity"]),
    "sum of a list": (lambda m, x: sum([x, m.f(x), m.g(x)]), ["identity", "identity"]),
    "addcmul": (lambda m, x: torch.addcmul(x, m.learnt, m.f(x)), ["scaled"]),
    "addmm": (lambda m, x: torch.addmm(x[0], torch.tanh(m.gate(x[0])), m.short.weight)[None], ["identity"]),
    "baddbmm": (
        lambda m, x: torch.baddbmm(x, torch.tanh(m.gate(x)), m.short.weight.expand(len(x), D, D)), ["identity"],
    ),
    "lerp": (lambda m, x: torch.lerp(x, m.f(x), 0.3), ["scaled"]),
    "lerp with a gate": (lambda m, x: torch.lerp(x, m.f(x), torch.sigmoid(m.gate(x))), ["gated"]),
    "index_add": (scatter_of_half, ["identity"]),
    "constant on the branch": (lambda m, x: x + 0.5 * m.f(x), ["scaled"]),
    "constant on the skip": (lambda m, x: 2**0.5 * x + m.f(x), ["scaled"]),
    "learnt on the branch": (lambda m, x: x + m.learnt * m.f(x), ["scaled"]),
    "learnt on the skip": (lambda m, x: m.learnt * x + m.f(x), ["scaled"]),
    "drop path": (lambda m, x: x + m.f(x) * torch.ones(len(x), 1, 1) / 0.9, ["scaled"]),
    "dropout": (lambda m, x: x + F.dropout(m.f(x), 0.2), ["identity"]),
    "half the sum": (lambda m, x: 0.5 * (x + m.f(x)), ["identity"]),
    "highway": (highway, ["gated"]),
    "gated as in GRU": (gated_recurrent_style, ["gated"]),
    "interpolation": (lambda m, x: x + m.learnt * (m.f(x) - x), ["scaled"]),
    "projection": (lambda m, x: m.short(x) + m.f(x), ["projection"]),
    "norm on the skip": (lambda m, x: F.layer_norm(x, (D,)) + m.f(x), ["projection"]),
    "pool on the skip": (
        lambda m, x: F.avg_pool1d(x.mT, 2).mT + m.f(F.max_pool1d(x.mT, 2).mT), ["projection"],
    ),
    "cast and transposed": (lambda m, x: (x.double().mT + m.f(x).double().mT).mT.float(), ["identity"]),
    "window": (lambda m, x: x.roll(1, 1) + m.f(x).roll(1, 1), ["identity"]),
    "trimmed": (lambda m, x: x[:, 1:] + m.f(x)[:, 1:], ["identity"]),
    "parallel": (lambda m, x: x + m.f(x) + m.g(x), ["identity", "identity"]),
    "sum of branches first": (lambda m, x: x + (m.f(x) + m.g(x)), ["identity"]),
    "nested": (nested, ["identity", "identity", "scaled"]),
    "post-norm": (lambda m, x: F.layer_norm(x + m.f(x), (D,)), ["identity"]),
    "convolution of positions": (
        lambda m, x: x + F.conv1d(x.mT, m.short.weight[:, None, :3], padding=1, groups=D).mT, ["identity"],
    ),
    "Fourier mixing": (lambda m, x: x + torch.fft.fft2(x).real, ["identity"]),
    "pooling of a normalised stream": (pooling, ["identity"]),
    "squeeze and excite": (lambda m, x: x + x * torch.sigmoid(m.gate(x.mean(1, keepdim=True))), ["identity"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_found_once_with_its_kind(name: str) -> None:
    step, kinds = FORMS[name]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, D), Block(step), Block(step), nn.Linear(D, 3))
    structure = structure_of(model, torch.randn(4, 8, 5))
    assert [site.kind for site in structure.sites if site.counted] == kinds * 2


def test_first_block_on_raw_input() -> None:
    """The input needs no gradient, so that autograd does not know the skip."""
    model = nn.Sequential(Block(lambda m, x: x + m.f(x)), Block(lambda m, x: x + m.f(x)))
    assert structure_of(model, torch.randn(4, 8, D)).num_residual == 2


def test_frozen_first_layer() -> None:
    model = nn.Sequential(nn.Linear(5, D).requires_grad_(False), Block(lambda m, x: x + m.f(x)))
    assert structure_of(model, torch.randn(4, 8, 5)).num_residual == 1


def test_raw_skip_of_queries() -> None:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.memory, self.queries = nn.Linear(5, D), nn.Parameter(torch.randn(6, D))
            self.attn, self.mlp = nn.MultiheadAttention(D, 2, batch_first=True), branch()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            memory = self.memory(x)
            query = self.queries[None].expand(len(x), -1, -1)
            query = query + self.attn(query, memory, memory)[0]
            return query + self.mlp(query)

    assert structure_of(Decoder(), torch.randn(2, 4, 5)).num_residual == 2


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layer_of_torch(norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(D, 2, 16, batch_first=True, norm_first=norm_first)
    model = nn.Sequential(nn.Linear(5, D), nn.TransformerEncoder(layer, 3, enable_nested_tensor=False))
    structure = structure_of(model, torch.randn(2, 4, 5))
    assert [site.placement for site in structure.sites] == (["pre"] if norm_first else ["post"]) * 6
    assert [site.branches for site in structure.sites[:2]] == [
        ("1.layers.0.self_attn",), ("1.layers.0.linear1", "1.layers.0.linear2"),
    ]  # fmt: skip
    assert structure.sites[0].name == "1.layers.0 + self_attn"


def test_a_helper_that_gates_each_branch_of_a_block_is_no_loop_over_time() -> None:
    class Helped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(branch() for _ in range(2))
            self.gates = nn.ModuleList(nn.Linear(D, D) for _ in range(2))

        def join(self, x: torch.Tensor, number: int) -> torch.Tensor:
            gate = torch.sigmoid(self.gates[number](x))
            return gate * x + (1 - gate) * self.parts[number](x)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.join(self.join(x, 0), 1)

    structure = structure_of(nn.Sequential(nn.Linear(5, D), Helped(), Helped()), torch.randn(4, 8, 5))
    assert [site.kind for site in structure.sites if site.counted] == ["gated"] * 4


def test_groups_of_parallel_branches() -> None:
    model = nn.Sequential(nn.Linear(5, D), *[Block(lambda m, x: x + m.f(x) + m.g(x)) for _ in range(2)])
    sites = structure_of(model, torch.randn(4, 8, 5)).sites
    assert [site.group for site in sites] == [0, 0, 1, 1]


def test_scales_are_known() -> None:
    blocks = Block(lambda m, x: 2.0 * x + m.f(x) / 4), Block(lambda m, x: x - 0.5 * m.f(x))
    model = nn.Sequential(nn.Linear(5, D), *blocks)
    sites = structure_of(model, torch.randn(4, 8, 5)).sites
    assert [(site.skip_scale, site.branch_scale) for site in sites] == [(2.0, 0.25), (1.0, 0.5)]


def test_source_line_and_operation() -> None:
    model = nn.Sequential(nn.Linear(5, D), Block(in_place))
    (site,) = structure_of(model, torch.randn(4, 8, 5)).sites
    assert site.op in {"add_", "__iadd__"}
    assert site.file == __file__
    assert site.line == in_place.__code__.co_firstlineno + 2


def test_concatenation_is_reported_but_not_counted() -> None:
    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(D * (i + 1), D) for i in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = torch.cat([x, torch.relu(layer(x))], -1)
            return x

    structure = structure_of(nn.Sequential(nn.Linear(5, D), Dense()), torch.randn(4, 5))
    assert structure.num_residual == 0
    assert [site.kind for site in structure.sites] == ["concat"] * 3
