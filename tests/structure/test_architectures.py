"""Unusual wirings, built small: what counts, and where the stream runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.structure.watching import structure_of, watched

D = 8
L = 4


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))


class Layers(nn.Module):
    """A stem, L blocks of two branches with norms, a head; the wiring is given."""

    def __init__(self, wire: Callable[[Layers, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.stem, self.head, self.final = nn.Linear(5, D), nn.Linear(D, 3), nn.LayerNorm(D)
        self.mixers = nn.ModuleList(nn.MultiheadAttention(D, 2, batch_first=True) for _ in range(L))
        self.mlps = nn.ModuleList(mlp() for _ in range(L))
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(4 * L))
        self.scales = nn.Parameter(torch.full((2 * L,), 0.5))
        self.mixing = nn.Parameter(torch.eye(2) + 0.1)
        self.wire = wire

    def mix(self, i: int, x: torch.Tensor) -> torch.Tensor:
        return self.mixers[i](x, x, x, need_weights=False)[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.wire(self, self.stem(x)))


def rezero(m: Layers, x: torch.Tensor) -> torch.Tensor:
    for i in range(L):
        x = x + m.scales[2 * i] * m.mix(i, x)
        x = x + m.scales[2 * i + 1] * m.mlps[i](x)
    return x


def deepnorm(m: Layers, x: torch.Tensor) -> torch.Tensor:
    for i in range(L):
        x = m.norms[2 * i](1.5 * x + m.mix(i, x))
        x = m.norms[2 * i + 1](1.5 * x + m.mlps[i](x))
    return x


def normformer(m: Layers, x: torch.Tensor) -> torch.Tensor:
    for i in range(L):
        x = x + m.norms[4 * i + 1](m.mix(i, m.norms[4 * i](x)))
        x = x + m.norms[4 * i + 3](m.mlps[i](m.norms[4 * i + 2](x)))
    return m.final(x)


def residual_dual(m: Layers, x: torch.Tensor) -> torch.Tensor:
    """ResiDual: a post-norm stream, and a second one that only collects."""
    collected = x
    for i in range(L):
        f = m.mix(i, x)
        collected = collected + f
        x = m.norms[i](x + f)
    return x + m.final(collected)


def bottom_to_top(m: Layers, x: torch.Tensor) -> torch.Tensor:
    """B2T: the block's input is added once more at its end."""
    for i in range(L):
        a = m.norms[2 * i](x + m.mix(i, x))
        x = m.norms[2 * i + 1](x + a + m.mlps[i](a))
    return x


def long_skip(m: Layers, x: torch.Tensor) -> torch.Tensor:
    y = x
    for i in range(L):
        y = y + m.mlps[i](m.norms[i](y))
    return x + y


def unet_of_sums(m: Layers, x: torch.Tensor) -> torch.Tensor:
    first = torch.tanh(m.mlps[0](x))
    second = torch.tanh(m.mlps[1](first))
    back = torch.tanh(m.mlps[2](second)) + first
    return m.mlps[3](back)


def mixture(m: Layers, x: torch.Tensor) -> torch.Tensor:
    """Routed experts on gathered tokens."""
    for i in range(0, L, 2):
        h = m.norms[i](x)
        weights, choice = F.softmax(m.norms[i + 1](h)[..., :2], -1).max(-1)
        y = torch.zeros_like(h)
        for expert in range(2):
            rows = (choice == expert).nonzero(as_tuple=True)
            y = y.index_put(rows, weights[rows][:, None] * m.mlps[i + expert](h[rows]))
        x = x + y
    return x


def nested_dense(m: Layers, x: torch.Tensor) -> torch.Tensor:
    """RRDB: residual in residual, branches scaled."""
    y = x
    for i in range(L):
        y = y + 0.2 * m.mlps[i](y)
    return x + 0.2 * y


def normalised_interpolation(m: Layers, x: torch.Tensor) -> torch.Tensor:
    """nGPT: a step from the stream towards the branch's output, on the sphere."""
    for i in range(L):
        x = F.normalize(x + 0.05 * (F.normalize(m.mlps[i](x), dim=-1) - x), dim=-1)
    return x


def reversible(m: Layers, x: torch.Tensor) -> torch.Tensor:
    """Additive coupling of two streams."""
    a, b = x, torch.tanh(x)
    for i in range(0, L, 2):
        a = a + m.mlps[i](b)
        b = b + m.mlps[i + 1](a)
    return torch.maximum(a, b)


def one_block_again_and_again(m: Layers, x: torch.Tensor) -> torch.Tensor:
    for _ in range(L):
        x = x + m.mlps[0](m.norms[0](x))
    return x


WIRINGS: dict[Callable[[Layers, torch.Tensor], torch.Tensor], tuple[int, set[str]]] = {
    rezero: (2 * L, {"scaled"}),
    deepnorm: (2 * L, {"scaled"}),
    normformer: (2 * L, {"identity"}),
    residual_dual: (2 * L, {"identity"}),
    bottom_to_top: (3 * L, {"identity"}),
    long_skip: (L + 1, {"identity"}),
    unet_of_sums: (1, {"identity"}),
    mixture: (2, {"identity"}),
    nested_dense: (L + 1, {"scaled"}),
    normalised_interpolation: (L, {"scaled"}),
    one_block_again_and_again: (L, {"identity"}),
}


@pytest.mark.parametrize("wire", WIRINGS, ids=lambda wire: wire.__name__)
def test_wiring(wire: Callable[[Layers, torch.Tensor], torch.Tensor]) -> None:
    torch.manual_seed(0)
    structure = structure_of(Layers(wire), torch.randn(3, 6, 5))
    assert structure.num_residual == WIRINGS[wire][0]
    assert {site.kind for site in structure.sites if site.counted} == WIRINGS[wire][1]


def test_reversible_coupling_counts_every_coupling() -> None:
    structure = structure_of(Layers(reversible), torch.randn(3, 6, 5))
    assert structure.num_residual == L


PLACEMENTS = {normformer: "sandwich", deepnorm: "post", rezero: "none", one_block_again_and_again: "pre"}


@pytest.mark.parametrize("wire", PLACEMENTS, ids=lambda wire: wire.__name__)
def test_placement(wire: Callable[[Layers, torch.Tensor], torch.Tensor]) -> None:
    structure = structure_of(Layers(wire), torch.randn(3, 6, 5))
    assert {site.placement for site in structure.sites} == {PLACEMENTS[wire]}


class RMSNorm(nn.Module):
    """As language models write it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(D))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class Gemma(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after, self.mlp = RMSNorm(), RMSNorm(), mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.after(self.mlp(self.before(x)))


def test_norm_between_stages_is_not_behind_the_block_before_it() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.f(x)

    stages = [nn.Sequential(Bare(), Bare(), nn.LayerNorm(8), nn.Linear(8, 8)) for _ in range(2)]
    structure = structure_of(nn.Sequential(nn.Linear(8, 8), *stages, nn.Sequential(Bare(), Bare())), torch.randn(3, 8))
    assert {site.placement for site in structure.sites} == {"none"}


@pytest.mark.parametrize(("ends", "placement"), [(nn.LayerNorm, "output"), (nn.Identity, "none")])
def test_final_norm_is_not_behind_the_last_of_two_blocks(ends: Callable[[int], nn.Module], placement: str) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
            self.norm = ends(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.norm(self.f(x))

    net = nn.Sequential(nn.Linear(8, 8), Block(), Block(), nn.LayerNorm(8), nn.Linear(8, 3))
    assert [site.placement for site in structure_of(net, torch.randn(3, 8)).sites] == [placement] * 2


def test_norms_written_by_hand_are_norms() -> None:
    """And their weight at the end of a branch is no layer scale."""
    structure = structure_of(nn.Sequential(nn.Embedding(9, D), Gemma(), Gemma(), nn.Linear(D, 3)), torch.arange(6))
    assert [(site.placement, site.kind) for site in structure.sites] == [("sandwich", "identity")] * 2


class ConvBlock(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.conv2, self.bn2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        self.short: nn.Module = nn.Identity()
        if before != after or stride > 1:
            self.short = nn.Sequential(nn.Conv2d(before, after, 1, stride), nn.BatchNorm2d(after))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True)))
        y += self.short(x)
        return F.relu(y, inplace=True)


def resnet() -> nn.Module:
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)),
        nn.Sequential(ConvBlock(4, 4, 1), ConvBlock(4, 4, 1)),
        nn.Sequential(ConvBlock(4, 8, 2), ConvBlock(8, 8, 1)),
        nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)),
    )


def test_stream_of_a_residual_network() -> None:
    """Stations are what the blocks take in: behind the activation, from the stem's to the last block's."""
    seen = watched(resnet(), torch.randn(4, 3, 8, 8))
    assert [site.kind for site in seen.structure.sites] == ["identity", "identity", "projection", "identity"]
    assert seen.structure.sites[2].skips == ("2.0.short",)
    assert [(s.name, s.kind) for s in seen.structure.stations] == [
        ("0.2", "start"), ("1.0", "block"), ("1.1", "block"), ("2.0", "block"), ("2.1", "block"),
    ]  # fmt: skip
    assert all(grad is not None and grad > 0 for grad in seen.station_grads)


def test_stream_of_a_plain_network() -> None:
    layers = [layer for _ in range(5) for layer in (nn.Linear(D, D), nn.Tanh())]
    seen = watched(nn.Sequential(*layers, nn.Linear(D, 3)), torch.randn(4, D))
    assert [station.name for station in seen.structure.stations] == ["0", "2", "4", "6", "8"]


def test_stream_of_transformers() -> None:
    for norm_first in (False, True):
        layer = nn.TransformerEncoderLayer(D, 2, 16, batch_first=True, norm_first=norm_first)
        norm = nn.LayerNorm(D) if norm_first else None
        encoder = nn.TransformerEncoder(layer, 3, norm=norm, enable_nested_tensor=False)
        structure = structure_of(nn.Sequential(nn.Embedding(9, D), encoder, nn.Linear(D, 9)), torch.arange(6)[None])
        kinds = [station.kind for station in structure.stations]
        assert kinds == ["start", *["addition", "block"] * 3]
        assert structure.stations[0].name == "0"
        assert structure.stations[-1].name == "1.layers.2"
        assert [site.depth for site in structure.sites] == [1, 2, 3, 4, 5, 6]


def test_stream_of_an_encoder_and_decoder() -> None:
    class Seq2Seq(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.source, self.target, self.head = nn.Embedding(9, D), nn.Embedding(9, D), nn.Linear(D, 9)
            self.body = nn.Transformer(D, 2, 2, 2, 16, batch_first=True)

        def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(self.source(source), self.target(target)))

    structure = structure_of(Seq2Seq(), torch.arange(6)[None], torch.arange(5)[None])
    assert structure.num_residual == 2 * 2 + 2 * 3
    names = [station.name for station in structure.stations if station.kind != "addition"]
    assert names == [
        "source", "body.encoder.layers.0", "body.encoder.layers.1",
        "target", "body.decoder.layers.0", "body.decoder.layers.1",
    ]  # fmt: skip


def test_stream_of_a_recurrent_cell() -> None:
    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.out = nn.RNNCell(3, D), nn.Linear(D, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = x.new_zeros(len(x), D)
            for t in range(x.shape[1]):
                h = self.cell(x[:, t], h)
            return self.out(h)

    structure = structure_of(Cell(), torch.randn(2, 4, 3))
    assert [station.name for station in structure.stations] == ["cell@0", "cell@1", "cell@2", "cell@3"]


def test_stream_runs_on_past_what_is_fed_to_every_block() -> None:
    """The input goes to each block as well, so that no block's output is passed by every gradient."""

    class Injected(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.layers = nn.Linear(5, D), nn.ModuleList(Conditioned() for _ in range(L))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first = x = self.stem(x)
            for layer in self.layers:
                x = layer(x, first)
            return x

    class Conditioned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.mlp, self.shift = nn.LayerNorm(D), mlp(), nn.Linear(D, D)

        def forward(self, x: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
            return x + self.mlp(self.norm(x) * (1 + torch.tanh(self.shift(first))))

    structure = structure_of(Injected(), torch.randn(3, 5))
    assert structure.num_residual == L
    assert [station.name for station in structure.stations] == ["stem", *[f"layers.{i}" for i in range(L)]]


def test_a_learned_vector_that_asks_for_each_token_begins_a_stream() -> None:
    """The query stream of XLNet: one vector repeated for every token, to which the first layer adds what it found."""

    class TwoStreams(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.head = nn.Linear(D, D), nn.Linear(D, 2)
            self.mask = nn.Parameter(torch.randn(1, 1, D))
            self.layers = nn.ModuleList(Attend() for _ in range(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.stem(x)
            g = nn.functional.dropout(self.mask.expand(len(x), x.shape[1], -1), 0.1)
            for layer in self.layers:
                h, g = layer(h, h), layer(g, h)
            return self.head(g)

    class Attend(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.out = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)

        def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
            weights = torch.softmax(self.query(x) @ self.key(memory).mT, -1)
            return x + self.out(weights @ memory)

    assert structure_of(TwoStreams(), torch.randn(3, 4, D)).num_residual == 4


class Tower(nn.Module):
    """Blocks of its own; it returns what they made, and that once more, pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Linear(D, D)
        self.blocks = nn.ModuleList(PreNorm() for _ in range(2))
        self.pool = nn.Linear(D, D)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.patches(x)
        for block in self.blocks:
            x = block(x)
        return {"last": x, "pooled": self.pool(x)}


class PreNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(D), mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(self.norm(x))


class Towers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.visual = Tower()
        self.layers = nn.ModuleList(PreNorm() for _ in range(2))
        self.head = nn.Linear(D, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.visual(x)["pooled"]
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def test_a_tower_that_returns_its_stream_and_its_pool_is_no_block_that_repeats() -> None:
    structure = structure_of(Towers(), torch.randn(4, 6, D))
    blocks = [station.name for station in structure.stations if station.kind == "block"]
    assert blocks == ["visual.blocks.0", "visual.blocks.1", "layers.0", "layers.1"]


class AddingTower(Tower):
    """Adds what its blocks make itself."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.patches(x)
        for block in self.blocks:
            x = x + block.mlp(x)
        return {"last": x, "pooled": self.pool(x)}


def test_two_outputs_of_one_call_are_no_two_blocks() -> None:
    model = Towers()
    model.visual, model.layers = AddingTower(), nn.ModuleList()
    names = [station.name for station in structure_of(model, torch.randn(4, 6, D)).stations]
    assert names == ["visual.patches", "visual + blocks.0.mlp", "visual + blocks.1.mlp"]


class Books(nn.Module):
    """Four embeddings that are added up and scaled by a number, then blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.books = nn.ModuleList(nn.Embedding(9, D) for _ in range(4))
        self.layers = nn.ModuleList(PreNorm() for _ in range(2))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = sum(book(ids) for book in self.books) * 3.0
        for layer in self.layers:
            x = layer(x)
        return x


def test_an_operation_on_many_modules_is_named_after_few_of_them() -> None:
    (start,) = [station.name for station in structure_of(Books(), torch.arange(6)).stations if station.kind == "start"]
    assert start.startswith("mul of books.")
    assert start.count("books") == 2
    assert start.endswith(", …")
