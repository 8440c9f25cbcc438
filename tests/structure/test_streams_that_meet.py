"""Streams that work on each other, first blocks on looked-up rows, norms on skips: counts and names by reading."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradscope
from tests.structure.watching import structure_of

D, T = 8, 5


def mlp(width: int = D) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 2 * D), nn.GELU(), nn.Linear(2 * D, D))


def attend(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return m.out(F.scaled_dot_product_attention(*m.qkv(x).chunk(3, -1)))  # type: ignore[operator, no-any-return]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.f, self.g, self.edges = mlp(), mlp(), mlp(2 * D)
        self.rate = nn.Parameter(torch.full((D,), 0.1))
        self.router = nn.Linear(D, 1)


class OnSphere(Block):
    """A normalised transformer: of the stream and of the branch the directions are mixed (Loshchilov 2024)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for branch in (attend(self, x), None):
            work = F.normalize(self.f(x) if branch is None else branch, dim=-1)
            start = x / x.norm(dim=-1, keepdim=True)
            mixed = start + self.rate.abs() * (work - start)
            x = mixed / mixed.norm(dim=-1, keepdim=True)
        return x


class MessagePassing(Block):
    """Nodes and edges are two streams: each adds work on both to itself (ProteinMPNN)."""

    def forward(self, both: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        nodes, edges = both
        pairs = torch.cat([nodes[:, None].expand(edges.shape), edges], -1)
        nodes = self.norm(nodes + self.edges(pairs).sum(1))
        pairs = torch.cat([nodes[:, None].expand(edges.shape), edges], -1)
        return nodes, self.norm2(edges + self.edges(pairs))


class Pairs(Block):
    """A stream of tokens that pairs bias, and one of pairs that the tokens' outer product is added to (Evoformer)."""

    def __init__(self) -> None:
        super().__init__()
        self.bias, self.up, self.after = nn.Linear(D, 1), nn.Linear(D, D), nn.LayerNorm(D)

    def forward(self, both: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        tokens, pairs = both
        q, k, v = self.qkv(self.norm(tokens)).chunk(3, -1)
        scores = q @ k.mT + self.bias(pairs).squeeze(-1)
        tokens = tokens + self.out(scores.softmax(-1) @ v)
        h = self.norm2(tokens)
        pairs = pairs + self.up(h[:, None] * h[None])
        return tokens, pairs + self.f(self.after(pairs))


class Coupled(Block):
    def forward(self, both: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        one, other = both
        one = one + self.f(self.norm(other))
        return one, other + self.g(self.norm2(one))


class SomeTokens(Block):
    """Mixture of depths: a router weighs what is added, and is no beginning of the branch (Raposo 2024)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, index = self.router(x).topk(2, dim=-2)
        index = index.expand(*index.shape[:-1], D)
        return x.scatter_add(-2, index, self.f(self.norm(x.gather(-2, index))) * torch.sigmoid(weight))


class SplitAttention(Block):
    """Two groups of channels are weighed by what both are together: a fusion, inside of a block (ResNeSt)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        groups = torch.relu(self.f[0](x)).split(D, dim=-1)
        weights = self.edges(F.pad(sum(groups), (0, D))).unflatten(-1, (2, -1)).softmax(-2)
        weights = weights.repeat_interleave(2, -1)
        return x + self.out(sum(w * g for w, g in zip(weights.unbind(-2), groups, strict=True)))


class Neighbours(Block):
    """Messages between nodes of a graph, weighed by attention, beside a layer on the node (Velickovic 2018)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        source, target = torch.arange(T).repeat(2), torch.arange(2 * T) % T
        h = self.out(x)
        weight = F.leaky_relu(self.router(h)[source] + self.router(h)[target], 0.2).exp()
        weight = weight / torch.zeros(T, 1).index_add(0, target, weight)[target]
        return F.elu(torch.zeros_like(h).index_add(0, target, h[source] * weight) + self.f[0](x)[:, :D])


class Slopes(Block):
    """A Runge-Kutta step: the stages are inputs of the branch, their slopes together are what is added."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.f(x)
        second = self.f(x + 0.5 * first)
        third = self.f(x + 0.5 * second)
        return x + (first + 2 * second + 2 * third + self.f(x + third)) / 6


class Net(nn.Module):
    """Three blocks between a layer and a head, on one stream or on two."""

    def __init__(self, block: Callable[[], nn.Module], begin: Callable[..., object] | None = None) -> None:
        super().__init__()
        self.stem, self.pairs, self.begin = nn.Linear(D, D), nn.Linear(D, D), begin
        self.blocks = nn.Sequential(*(block() for _ in range(3)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = self.pairs(x)
        x = self.stem(x)
        x = self.blocks(x if self.begin is None else self.begin(x, pairs))
        return x if isinstance(x, torch.Tensor) else torch.cat([part.flatten() for part in x])


def with_edges(x: torch.Tensor, pairs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x, torch.tanh(pairs[:, None] + pairs[None])


def halves(x: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.cat([x, other], -1).chunk(2, -1)


CASES = {
    "sphere": (Net(OnSphere), ["qkv … out", "f"], "projection", "post"),
    "messages": (Net(MessagePassing, with_edges), ["edges", "edges #2"], "identity", "post"),
    "pairs": (Net(Pairs, with_edges), ["qkv … out", "up", "f"], "identity", "pre"),
    "coupling": (Net(Coupled, halves), ["f", "g"], "identity", "pre"),
    "tokens": (Net(SomeTokens), ["router … f"], "gated", "pre"),
    "split": (Net(SplitAttention), ["f.0 … out"], "identity", "none"),
    "neighbours": (Net(Neighbours), ["out … router"], "projection", "none"),
    "slopes": (Net(Slopes), ["f"], "scaled", "none"),
}


@pytest.mark.parametrize("name", CASES)
def test_each_block_is_found_by_its_own_name(name: str) -> None:
    model, branches, kind, placement = CASES[name]
    sites = [site for site in structure_of(model, torch.randn(T, D)).sites if site.counted]
    assert [site.name for site in sites] == [f"blocks.{i} + {branch}" for i in range(3) for branch in branches]
    assert {site.kind for site in sites} == {kind}
    assert {site.placement for site in sites} == {placement}


class Rows(nn.Module):
    """Functions over a dict of weights: the first block works on rows of a table, before any data are seen."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.at = nn.Parameter(torch.randn(20, D)), nn.Parameter(torch.randn(T, D))
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(D, D) / D) for _ in range(6))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table[ids] + self.at
        for q, w in zip(self.weights[::2], self.weights[1::2], strict=True):
            h = F.layer_norm(x, (D,))
            x = x + (h @ q @ h.mT).softmax(-1) @ h @ w
        return x @ self.table.mT


class Features(nn.Module):
    """Numbers become tokens: each is multiplied with a vector of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias, self.block = nn.Parameter(torch.randn(T, D)), nn.Parameter(torch.randn(T, D)), Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.weight[None] * x[..., None] + self.bias[None]
        x = x + attend(self.block, x)
        return x + self.block.f(x)


class Preconditioned(nn.Module):
    """A diffusion model's input goes past everything, weighed by the noise of the sample (Karras 2022)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.block, self.head = nn.Linear(D, D), mlp(), nn.Linear(D, D)

    def forward(self, x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        h = self.stem(x / (1 + sigma**2).sqrt())
        h = h + self.block(h)
        return x * (1 / (1 + sigma**2)) + self.head(h) * (sigma / (1 + sigma**2).sqrt())


def test_rows_of_a_table_are_a_stream_before_any_data_are_seen() -> None:
    assert structure_of(Rows(), torch.randint(20, (2, T))).num_residual == 3


def test_rows_of_a_table_of_biases_are_none() -> None:
    class Biased(Block):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(9, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
            places = torch.arange(len(x))
            scores = q @ k.mT + self.table[places[:, None] - places + 4].squeeze(-1)
            return x + self.out(scores.softmax(-1) @ v)

    assert structure_of(Net(Biased), torch.randn(T, D)).num_residual == 3


def test_numbers_times_vectors_are_a_stream() -> None:
    assert structure_of(Features(), torch.randn(4, T)).num_residual == 2


def test_raw_input_that_is_weighed_for_each_sample_is_a_skip() -> None:
    sites = structure_of(Preconditioned(), torch.randn(4, D), torch.rand(4, 1) + 0.1).sites
    assert [(site.name, site.kind) for site in sites] == [("+ block", "identity"), ("+ stem … head", "scaled")]


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_scripted_children_that_are_run_as_one_after_a_few_steps() -> None:
    """TorchScript first runs their operations one by one, then some of the children as one, then all."""

    class Scripted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.f, self.g = nn.LayerNorm(D), nn.Linear(D, D), nn.Linear(D, D)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.g(torch.relu(self.f(self.norm(x))))

    model = nn.Sequential(nn.Linear(D, D), *(torch.jit.script(Scripted()) for _ in range(3)), nn.Linear(D, 2))
    recording = gradscope.inspect(model, torch.randn(4, D), lambda output, _: output.square().mean()).recording
    assert [row["counted"] for row in recording.rows("sites")] == [True] * 3


def test_token_that_is_split_off_and_attends_to_all() -> None:
    """The first block as well, whose stream comes straight from a layer: the second one shows that it goes on."""

    class ClassAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.q, self.k, self.out = nn.LayerNorm(D), nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)

        def attend(self, u: torch.Tensor) -> torch.Tensor:
            u = self.norm(u)
            return self.out((self.q(u[:, :1]) @ self.k(u).mT).softmax(-1) @ u)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            token, patches = x[:, :1], x[:, 1:]
            token = token + self.attend(torch.cat([token, patches], 1))
            return torch.cat([token, patches], 1)

    model = nn.Sequential(nn.Linear(5, D), ClassAttention(), ClassAttention(), nn.Linear(D, 3))
    structure = structure_of(model, torch.randn(2, 6, 5))
    assert [site.name for site in structure.sites if site.counted] == ["1 + q … out", "2 + q … out"]


class TwoWay(nn.Module):
    """Points look at a picture and the picture at the points, each with its positions added (Kirillov 2023, SAM)."""

    def __init__(self) -> None:
        super().__init__()
        self.points, self.to_picture, self.to_points = (nn.MultiheadAttention(D, 2, batch_first=True) for _ in "abc")
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(4))
        self.f = mlp()

    def forward(
        self, x: torch.Tensor, picture: torch.Tensor, at: torch.Tensor, where: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.norms[0](x + self.points(x + at, x + at, x)[0])
        x = self.norms[1](x + self.to_picture(x + at, picture + where, picture)[0])
        x = self.norms[2](x + self.f(x))
        return x, self.norms[3](picture + self.to_points(picture + where, x + at, x)[0])


def test_picture_that_is_only_read_with_its_positions_added() -> None:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.where = nn.Linear(D, D), nn.Parameter(torch.randn(1, 9, D))
            self.blocks, self.out = nn.ModuleList(TwoWay() for _ in range(2)), nn.Linear(D, 3)

        def forward(self, points: torch.Tensor, picture: torch.Tensor) -> torch.Tensor:
            first = x = self.stem(points)
            picture = self.stem(picture)
            where = self.stem(self.where.expand_as(picture))
            for block in self.blocks:
                x, picture = block(x, picture, first, where)
            return self.out(torch.cat([x, picture], 1))

    sites = structure_of(Decoder(), torch.randn(2, 4, D), torch.randn(2, 9, D)).sites
    found = [(site.branches[-1].split(".")[-1], site.placement) for site in sites if site.counted]
    assert found == [("points", "post"), ("to_picture", "post"), ("f", "post"), ("to_points", "post")] * 2
