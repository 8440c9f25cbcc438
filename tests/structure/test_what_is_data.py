"""What counts as data, as a weight and as a condition, where no gradient tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradscope
from gradscope.probe.structure import residual
from tests.structure.watching import explicit_flows, structure_of, watched

D = 8
Step = Callable[[torch.Tensor], torch.Tensor]


def rounded(x: torch.Tensor) -> torch.Tensor:
    """Straight through a rounding (Bengio 2013), as training for low precision does it."""
    step = x.abs().amax(-1, keepdim=True).clamp(min=1e-3) / 7
    return x + ((x / step).round() * step - x).detach()


def rounded_under_no_grad(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        nearest = (x * 7).round() / 7
    return x + (nearest - x).detach()


class Rounded(nn.Linear):
    rounding: Step = staticmethod(rounded)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(self.rounding(x), self.rounding(self.weight), self.bias)


class Adapted(nn.Linear):
    """A frozen weight and a low-rank change of it, put together before use."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.weight.requires_grad_(False)
        self.a, self.b = nn.Parameter(torch.randn(2, sizes[0])), nn.Parameter(torch.randn(sizes[1], 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight + self.b @ self.a, self.bias)


class RoundedUnderNoGrad(Rounded):
    rounding = staticmethod(rounded_under_no_grad)


class Block(nn.Module):
    def __init__(self, layer: type[nn.Linear]) -> None:
        super().__init__()
        self.norm, self.f = nn.LayerNorm(D), nn.Sequential(layer(D, D), nn.ReLU(), layer(D, D))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.f(self.norm(x))


@pytest.mark.parametrize("layer", [nn.Linear, Rounded, RoundedUnderNoGrad, Adapted])
def test_layers_with_weights_that_are_rounded_or_changed(layer: type[nn.Linear]) -> None:
    structure = structure_of(nn.Sequential(nn.Linear(D, D), Block(layer), Block(layer)), torch.randn(4, D))
    assert [(site.name, site.kind, site.placement) for site in structure.sites] == [
        ("1 + f", "identity", "pre"), ("2 + f", "identity", "pre"),
    ]  # fmt: skip


def test_features_that_are_cut_off_are_still_data() -> None:
    class Onward(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tower, self.position = nn.Linear(D, D), nn.Parameter(torch.zeros(D))
            self.blocks = nn.Sequential(Block(nn.Linear), Block(nn.Linear))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.blocks(self.tower(x).detach() + self.position)

    assert structure_of(Onward(), torch.randn(4, D)).num_residual == 2


class Loop(nn.Module):
    """A recurrent network that adds to its state, on data that need no gradient."""

    def __init__(self, read: Callable[[torch.Tensor, int], torch.Tensor]) -> None:
        super().__init__()
        self.cell, self.read = nn.Linear(2 * D, D), read

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros_like(self.read(x, 0))
        for t in range(4):
            h = h + torch.tanh(self.cell(torch.cat([self.read(x, t), h], -1)))
        return h


READS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "second axis": lambda x, t: x[:, t],
    "last axis": lambda x, t: x[..., t],
    "a slice": lambda x, t: x[:, t : t + 1].flatten(1),
    "unbound": lambda x, t: x.unbind(1)[t],
    "a chunk": lambda x, t: x.chunk(D, dim=1)[t].flatten(1),
    "a split": lambda x, t: x.split([1] * D, 1)[t].flatten(1),
}


@pytest.mark.parametrize("read", READS)
def test_loop_over_raw_data_is_time(read: str) -> None:
    structure = structure_of(Loop(READS[read]), torch.randn(3, D, D))
    assert structure.sites
    assert all(site.recurrent for site in structure.sites)


def test_loop_that_reads_all_of_the_data_each_time_is_depth() -> None:
    structure = structure_of(Loop(lambda x, _: x[:, 0]), torch.randn(3, D, D))
    assert structure.num_residual == 4


class Gru(nn.Module):
    """A recurrent cell written by hand; each step takes its part of the data twice."""

    def __init__(self) -> None:
        super().__init__()
        self.z, self.r, self.n = (nn.Linear(2 * D, D) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.new_zeros(len(x), D)
        for t in range(x.shape[1]):
            both = torch.cat([x[:, t], h], -1)
            z, r = torch.sigmoid(self.z(both)), torch.sigmoid(self.r(both))
            h = z * h + (1 - z) * torch.tanh(self.n(torch.cat([x[:, t], r * h], -1)))
        return h


def test_search_in_a_loop_over_raw_data_grows_with_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    search = residual.Finder._search

    def counting(finder: residual.Finder, *arguments: Any) -> Any:
        before = finder.spent
        found = search(finder, *arguments)
        looked_at[-1] += finder.spent - before
        return found

    monkeypatch.setattr(residual.Finder, "_search", counting)
    for length in (50, 100, 200):
        looked_at.append(0)
        structure = structure_of(Gru(), torch.randn(2, length, D))
        assert sum(site.recurrent for site in structure.sites) == length - 1
    first, second, third = looked_at
    assert third - second < 2.5 * (second - first)


class Denoiser(nn.Module):
    """The preconditioning of Karras 2022, with a layer for the noise level."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.level, self.out = nn.Linear(D, D), nn.Linear(1, D), nn.Linear(D, D)
        self.f = nn.ModuleList(nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, D)) for _ in range(2))

    def forward(self, x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        scale = 1 / (sigma**2 + 0.25).sqrt()
        h = self.stem(scale * x) + self.level(sigma.log() / 4)
        for f in self.f:
            h = h + f(h)
        return 0.25 / (sigma**2 + 0.25) * x + 0.5 * sigma * scale * self.out(h)


def test_noise_level_is_a_condition() -> None:
    sites = structure_of(Denoiser(), torch.randn(4, D), torch.rand(4, 1) + 0.1).sites
    assert [(site.name, site.kind, site.placement) for site in sites] == [
        ("+ f.0", "identity", "none"), ("+ f.1", "identity", "none"), ("+ stem … out", "scaled", "none"),
    ]  # fmt: skip


class Upscaler(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head, self.tail = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 12, 3, padding=1)
        self.body = nn.ModuleList(
            nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 1)) for _ in range(2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.head(x)
        for f in self.body:
            h = h + f(h)
        return F.pixel_shuffle(self.tail(h), 2) + F.interpolate(x, scale_factor=2, mode="bilinear")


def test_picture_that_is_enlarged_below_its_details() -> None:
    """Global residual learning (Kim 2016, VDSR; EDSR and its kin add the enlarged input)."""
    assert [site.kind for site in structure_of(Upscaler(), torch.randn(2, 3, 6, 6)).sites] == [
        "identity", "identity", "projection",
    ]  # fmt: skip


class Inner(nn.Module):
    """A block on the branch of a larger one that reads the stream in ways of its own."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.f, self.shortcut, self.gate = Block(nn.Linear).f, nn.Linear(D, D), nn.Linear(D, D)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "projected":
            return self.shortcut(x) + self.f(x)
        if self.kind == "scaled":
            return 0.5 * x + self.f(x)
        if self.kind == "stacked":
            return torch.stack([x, self.f(x)]).sum(0)
        return torch.sigmoid(self.gate(x)) * x + self.f(x)


class Outer(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.inner, self.last = Inner(kind), nn.Linear(D, D)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.last(self.inner(x))


@pytest.mark.parametrize("kind", ["projected", "scaled", "stacked", "gated"])
def test_gradients_of_a_block_around_another(kind: str) -> None:
    """What the inner block's skip reads of the stream belongs to the outer block's branch."""
    model = nn.Sequential(nn.Linear(D, D), Outer(kind)).double()
    seen = watched(model, torch.randn(4, D, dtype=torch.float64), retain=True)
    assert [site.name for site in seen.counted] == ["1.inner + f", "1 + inner … last"]
    truth = explicit_flows(seen.structure, seen.loss)[-1]
    assert truth is not None
    assert seen.number(seen.flows[-1].branch) == pytest.approx(truth[2])


class Gate(nn.Module):
    """The gate of GTrXL (Parisotto 2019): the stream goes into the candidate and both gates."""

    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(D, D)
        self.w, self.u = (nn.ModuleList(nn.Linear(D, D) for _ in "rzh") for _ in "wu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.f(x))
        r, z = (torch.sigmoid(w(y) + u(x)) for w, u in zip(self.w[:2], self.u[:2], strict=True))
        return (1 - z) * x + z * torch.tanh(self.w[2](y) + self.u[2](r * x))


def test_gradients_of_a_gate_whose_inner_sums_look_like_blocks() -> None:
    seen = watched(nn.Sequential(nn.Linear(D, D), Gate()).double(), torch.randn(4, D, dtype=torch.float64), retain=True)
    truth = explicit_flows(seen.structure, seen.loss)[0]
    assert len(seen.counted) == 1
    assert truth is not None
    assert seen.number(seen.flows[0].branch) == pytest.approx(truth[2])


def test_last_checkpointed_block_is_seen_where_the_loss_is_made_outside_of_the_model() -> None:
    from torch.utils.checkpoint import checkpoint

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.blocks = nn.Linear(D, D), nn.ModuleList(Block(nn.Linear) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.stem(x)
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=True)
            return x

    model = Net()
    with gradscope.watch(model) as scope:
        model(torch.randn(4, D)).pow(2).sum().backward()
    assert len(scope.recording.to_frames()["sites"]) == 3


def test_sum_from_which_nothing_is_computed_is_confessed() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f, self.h = (nn.ModuleList(nn.Linear(D, D) for _ in range(2)) for _ in "fh")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = torch.zeros(())
            for f, h in zip(self.f, self.h, strict=True):
                y = torch.relu(f(x))
                out, x = out + h(y), x + y
            return out

    seen = watched(nn.Sequential(nn.Linear(D, D), Heads()), torch.randn(4, D))
    confessed = [what for what, why in seen.structure.confessions if why == "nothing is computed from them"]
    assert len(seen.counted) == 1
    assert len(confessed) == 1
    assert "1 (line" in confessed[0]


def test_block_in_a_module_with_a_long_loop_is_found_where_a_checkpoint_runs_it_again() -> None:
    """Sums of one module are told apart by their lines in the second run as well."""
    from torch.utils.checkpoint import checkpoint

    class Scan(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.into, self.out = nn.LayerNorm(D), nn.Linear(D, D), nn.Linear(D, D)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            u, h, states = self.into(self.norm(x)), torch.zeros(len(x), D), []
            for t in range(x.shape[1]):
                h = 0.9 * h + torch.sigmoid(u[:, t]) * u[:, t]
                states.append(h)
            return x + self.out(torch.stack(states, 1))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.blocks = nn.Linear(D, D), nn.ModuleList(Scan() for _ in range(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.stem(x)
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=True)
            return x

    model = Net()
    with gradscope.watch(model) as scope:
        model(torch.randn(2, 40, D)).pow(2).sum().backward()
    stats = scope.recording.to_frames()["site_stats"]
    assert len(stats) == 2
    assert stats.branch_grad_norm.notna().all()
