"""Rarer ways to write a residual addition: what is found of them, and how large skip and branch are said to be."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from tests.structure.watching import structure_of, watched

B, T, D = 4, 6, 8
"""Samples, tokens, width."""
SOME = torch.arange(0, B * T, 3)


class Net(nn.Module):
    """Two blocks with one layer each; the wiring is given."""

    def __init__(self, step: Callable[[Net, nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.inp, self.out, self.norm = nn.Linear(D, D), nn.Linear(D, 3), nn.LayerNorm(D)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(D, D), nn.ReLU()) for _ in range(2))
        self.weights = nn.Parameter(torch.zeros(2))
        self.scale = nn.Parameter(torch.full((D,), 0.5))
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inp(x)
        for layer in self.layers:
            x = self.step(self, layer, x)
        return self.out(x)


def stack_kept(_: Net, f: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x, f(x)], 1).sum(1, keepdim=True).squeeze(1)


def stack_weighed(m: Net, f: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (torch.stack([x, f(x)]) * m.weights.softmax(0)[:, None, None, None]).sum(0)


def some_tokens_added(m: Net, f: nn.Module, x: torch.Tensor) -> torch.Tensor:
    flat = x.reshape(-1, D)
    return flat.index_add(0, SOME, f(m.norm(flat[SOME]))).reshape(x.shape)


def some_tokens_accumulated(m: Net, f: nn.Module, x: torch.Tensor) -> torch.Tensor:
    flat = x.reshape(-1, D)
    return flat.index_put((SOME,), f(m.norm(flat[SOME])), accumulate=True).reshape(x.shape)


def some_tokens_reduced(m: Net, f: nn.Module, x: torch.Tensor) -> torch.Tensor:
    places = torch.arange(0, T, 2)[None, :, None].expand(B, -1, D)
    return x.scatter_reduce(1, places, f(m.norm(x.gather(1, places))), "sum")


def divided(m: Net, f: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.addcdiv(x, f(x), m.scale)


def interpolated_by_constants(_: Net, f: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.lerp(x, f(x), torch.full((D,), 0.2))


def matrices_added(_: Net, f: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.baddbmm(x, F.relu(x), f[0].weight.expand(B, D, D))  # type: ignore[index]


SPELLINGS = [
    (stack_kept, "identity", "none"), (stack_weighed, "scaled", "none"), (some_tokens_added, "identity", "pre"),
    (some_tokens_accumulated, "identity", "pre"), (some_tokens_reduced, "identity", "pre"),
    (divided, "scaled", "none"), (interpolated_by_constants, "scaled", "none"), (matrices_added, "identity", "none"),
]  # fmt: skip


@pytest.mark.parametrize(("step", "kind", "placement"), SPELLINGS)
def test_spelling(step: Callable[[Net, nn.Module, torch.Tensor], torch.Tensor], kind: str, placement: str) -> None:
    torch.manual_seed(0)
    seen = watched(Net(step), torch.randn(B, T, D))
    assert [(site.kind, site.placement) for site in seen.counted] == [(kind, placement)] * 2
    assert not seen.structure.confessions
    for site in seen.counted:
        skip, branch, out = (seen.number(handle) or math.nan for handle in site.forward_handles())
        assert abs(skip - branch) < out < skip + branch


def test_half_of_a_weighed_stack_is_the_skip() -> None:
    model, x = Net(stack_weighed), torch.randn(B, T, D)
    seen = watched(model, x)
    with torch.no_grad():
        stream = model.inp(x)
    assert seen.number(seen.counted[0].forward_handles()[0]) == pytest.approx(0.5 * float(stream.norm()))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_sums_that_torch_compiled_or_maps_are_found_and_their_sizes_are_not() -> None:
    @torch.jit.script
    def add(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one + other

    def scripted(_: Net, f: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return add(x, f(x))

    def mapped(_: Net, f: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda sample: sample + f(sample))(x)

    for step in (scripted, mapped):
        structure = structure_of(Net(step), torch.randn(B, T, D))
        assert structure.num_residual == 2
        assert "how large skip and branch are" in structure.confessions[0][0]
    assert structure.sites[0].line is not None


def test_sums_inside_a_function_of_torch_are_its_own() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.out = nn.GRUCell(D, D), nn.Linear(D, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            state = x.new_zeros(B, D)
            for step in x.unbind(1):
                state = self.cell(step, state)
            return self.out(state)

    assert structure_of(Recurrent(), torch.randn(B, T, D)).num_residual == 0


def test_branch_with_a_spectral_norm() -> None:
    model = Net(lambda _, f, x: x + f(x))
    for layer in model.layers:
        spectral_norm(layer[0])  # type: ignore[index]
    assert structure_of(model, torch.randn(B, T, D)).num_residual == 2


def test_heads_of_consecutive_layers_are_no_stream() -> None:
    class Boosted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(D, D) for _ in range(4))
            self.heads = nn.ModuleList(nn.Linear(D, 3) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            total = torch.zeros(())
            for layer, head in zip(self.layers, self.heads, strict=True):
                x = F.relu(layer(x))
                total = total + head(x)
            return total

    assert structure_of(Boosted(), torch.randn(B, T, D)).num_residual == 0


def test_a_border_is_no_finer_resolution() -> None:
    class Narrowing(nn.Module):
        """The last block of a network whose maps have become smaller than their borders."""

        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 16, 1)
            self.shrink, self.widen = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 32, 3, 2)
            self.skip, self.out = nn.Conv2d(16, 32, 1, 2), nn.Conv2d(32, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.stem(x)
            branch = F.pad(F.relu(self.shrink(x)), (1, 1, 1, 1), mode="reflect")
            return self.out(F.relu(self.widen(branch) + self.skip(F.avg_pool2d(x, 1))))

    structure = structure_of(Narrowing(), torch.randn(2, 3, 2, 2))
    assert [site.kind for site in structure.sites] == ["projection"]


def test_inputs_scaled_by_what_is_computed_from_a_parameter_are_data() -> None:
    """exp(log_k) * x on raw inputs: what follows are data, though autograd knows of nothing but the parameter."""

    class Compressed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log_k = nn.Parameter(torch.zeros(()))
            self.embed, self.norm, self.layer = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.asinh(torch.exp(self.log_k) * (x - x.mean(-1, keepdim=True)))
            x = self.embed(x)
            return x + self.layer(self.norm(x)).relu()

    assert structure_of(Compressed(), torch.randn(4, 8)).num_residual == 1
