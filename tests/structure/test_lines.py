"""Where the stream runs in networks in which gradients have ways round the blocks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from tests.structure.watching import structure_of, watched

B, T, D, L = 2, 6, 8, 5


def names_of(model: nn.Module, *inputs: torch.Tensor) -> list[str]:
    return [station.name for station in structure_of(model, *inputs).stations]


def cells(i: int, o: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1), nn.ReLU())


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 1)
        self.down = nn.ModuleList(cells(4, 4, 2) for _ in range(3))
        self.up = nn.ModuleList(cells(8, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, kept = self.stem(x), []
        for down in self.down:
            kept.append(x)
            x = down(x)
        for up in self.up:
            x = up(torch.cat([F.interpolate(x, scale_factor=2), kept.pop()], 1))
        return self.head(x)


class Timed(nn.Module):
    """A residual block of a diffusion model, told the time."""

    def __init__(self, i: int, o: int) -> None:
        super().__init__()
        self.norm1, self.conv1, self.time = nn.GroupNorm(2, i), nn.Conv2d(i, o, 3, 1, 1), nn.Linear(D, o)
        self.norm2, self.conv2 = nn.GroupNorm(2, o), nn.Conv2d(o, o, 3, 1, 1)
        self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class Diffusion(UNet):
    def __init__(self) -> None:
        super().__init__()
        self.time, self.middle = nn.Linear(1, D), Timed(4, 4)
        self.down, self.up = nn.ModuleList(Timed(4, 4) for _ in range(3)), nn.ModuleList(Timed(8, 4) for _ in range(3))

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        x, kept, time = self.stem(x), [], self.time(time)
        for down in self.down:
            x = down(x, time)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x, time)
        for up in self.up:
            x = up(torch.cat([F.interpolate(x, scale_factor=2), kept.pop()], 1), time)
        return self.head(x)


def test_both_arms_of_a_u_net() -> None:
    assert names_of(UNet(), torch.randn(B, 3, 8, 8)) == [f"{arm}.{i}" for arm in ("down", "up") for i in range(3)]


def test_all_blocks_of_a_diffusion_model() -> None:
    seen = watched(Diffusion(), torch.randn(B, 3, 8, 8), torch.rand(B, 1))
    blocks = [*(f"down.{i}" for i in range(3)), "middle", *(f"up.{i}" for i in range(3))]
    assert [(station.call.module if station.call else "") for station in seen.structure.stations] == ["stem", *blocks]
    assert [site.depth for site in seen.counted] == [1, 2, 3, 4, 5, 6, 7]
    assert all(seen.station_grads)


class Equilibrium(nn.Module):
    """z = tanh(W z + x), unrolled, with weights of its own for each step or the same ones."""

    def __init__(self, *, shared: bool) -> None:
        super().__init__()
        self.stem, self.head, self.shared = nn.Linear(D, D), nn.Linear(D, 2), shared
        self.steps = nn.ModuleList(nn.Linear(D, D) for _ in range(1 if shared else L))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        z = torch.zeros_like(x)
        for i in range(L):
            z = torch.tanh(self.steps[0 if self.shared else i](z) + x)
        return self.head(z)


@pytest.mark.parametrize("shared", [True, False])
def test_steps_towards_an_equilibrium(shared: bool) -> None:
    """The state has no skip: it is x that is added, to each step again."""
    structure = structure_of(Equilibrium(shared=shared), torch.randn(B, D))
    assert structure.num_residual == 0
    places = [f"steps.0@{i}" if shared else f"steps.{i}" for i in range(L)]
    assert [station.name for station in structure.stations] == places


class Coupling(nn.Module):
    """An affine coupling of a normalising flow."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(D // 2, D), nn.Tanh(), nn.Linear(D, D))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept, changed = x.chunk(2, -1)
        scale, shift = self.net(kept).chunk(2, -1)
        return torch.cat([changed * scale.exp() + shift, kept], -1)


def test_couplings_of_a_flow() -> None:
    assert names_of(nn.Sequential(nn.Linear(D, D), *[Coupling() for _ in range(4)]), torch.randn(B, D)) == list("1234")


class Exits(nn.Module):
    """A head behind every layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(D, D), nn.ReLU()) for _ in range(L))
        self.heads = nn.ModuleList(nn.Linear(D, 2) for _ in range(L))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs = []
        for layer, head in zip(self.layers, self.heads, strict=True):
            x = layer(x)
            outputs.append(head(x))
        return torch.stack(outputs)


def test_layers_with_exits() -> None:
    assert names_of(Exits(), torch.randn(B, D)) == [f"layers.{i}" for i in range(L)]


def test_steps_whose_outputs_are_all_of_use_are_time() -> None:
    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.into, self.over, self.head = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, 2)

        def forward(self, state: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.into(x) + self.over(state))

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = Cell(), nn.Linear(D, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            states = [torch.zeros(len(x), D)]
            for step in x.unbind(1):
                states.append(self.cell(states[-1], step))
            return self.head(torch.stack(states[1:], 1))

    assert len(names_of(Tagger(), torch.randn(B, T, D))) <= 1


class OnSomeTokens(nn.Module):
    """A block that works on every third token (Raposo 2024, Mixture-of-Depths)."""

    def __init__(self, *, assigns: bool) -> None:
        super().__init__()
        self.norm, self.mlp, self.assigns = nn.LayerNorm(D), nn.Sequential(nn.Linear(D, D), nn.GELU()), assigns

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat, some = x.reshape(-1, D), torch.arange(0, B * T, 3)
        branch = self.mlp(self.norm(flat[some]))
        if self.assigns:
            flat = flat.clone()
            flat[some] = flat[some] + branch
        else:
            flat = flat.index_add(0, some, branch)
        return flat.view(x.shape)


@pytest.mark.parametrize("assigns", [True, False])
def test_blocks_that_work_on_some_tokens(assigns: bool) -> None:
    """Their outputs are the stations: the sums are of a part of the tokens, or the same tensor in another shape."""
    model = nn.Sequential(nn.Linear(D, D), *[OnSomeTokens(assigns=assigns) for _ in range(3)], nn.Linear(D, 2))
    structure = structure_of(model, torch.randn(B, T, D))
    assert [(site.depth, site.placement) for site in structure.sites] == [(1, "pre"), (2, "pre"), (3, "pre")]
    assert [(station.name, station.num_elements) for station in structure.stations] == [(i, B * T * D) for i in "0123"]


def test_a_transformer_of_torch_on_raw_inputs() -> None:
    model = nn.Transformer(D, 2, 2, 2, 16, batch_first=True)
    structure = structure_of(model, torch.randn(B, T, D), torch.randn(B, T - 1, D))
    assert structure.num_residual == 2 * 2 + 2 * 3
    assert structure.sites[0].name == "encoder.layers.0 + self_attn"
    assert [site.depth for site in structure.sites] == list(range(10))


class Dual(nn.Module):
    """A Post-LN stream, and a second one to which every branch is added as well (Xie 2023, ResiDual)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(D, D), nn.Linear(D, 2)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Linear(D, D)) for _ in range(L))
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(L + 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = dual = self.stem(x)
        for layer, norm in zip(self.layers, self.norms, strict=False):
            branch = layer(x)
            x, dual = norm(x + branch), dual + branch
        return self.head(x + self.norms[-1](dual))


def test_one_of_two_streams_that_share_their_branches() -> None:
    structure = structure_of(Dual(), torch.randn(B, T, D))
    assert structure.num_residual == 2 * L
    assert len(structure.stations) == 1 + L
    assert [site.depth for site in structure.sites if site.placement == "post"] == [1, 2, 3, 4, 5]
    assert {site.depth for site in structure.sites if site.placement != "post"} == {None}


@pytest.mark.parametrize("dress", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_layers_whose_weights_are_computed_by_modules_inside(dress: Callable[[nn.Module], nn.Module]) -> None:
    layers = [part for _ in range(L) for part in (dress(nn.Linear(D, D)), nn.ReLU())]
    assert names_of(nn.Sequential(*layers, nn.Linear(D, 2)), torch.randn(B, D)) == [f"{2 * i}" for i in range(L)]


def test_functions_with_their_weights_in_a_list() -> None:
    """No module makes the layers: they are named after their weights; the last one makes the output."""

    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterList(nn.Parameter(torch.randn(D, D)) for _ in range(6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for weight in self.weights:
                x = torch.tanh(x @ weight)
            return x

    seen = watched(Functional(), torch.randn(3, D))
    assert [station.name for station in seen.structure.stations] == [f"weights.{i}" for i in range(5)]
    assert None not in seen.station_grads
