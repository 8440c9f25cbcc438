"""What must not fool the finder, and what it must leave as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint

from gradscope.probe.structure.additions import AdditionRecorder
from gradscope.probe.structure.streams import StreamWatch
from gradscope.probe.watching.calls import CallTracker
from gradscope.probe.watching.rows import Rows
from tests.structure.watching import plain_loss, structure_of, watched

D = 8


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(D), nn.Linear(D, D), nn.Linear(D, D)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.b(torch.relu(self.a(self.norm(x))))


class Checkpointed(nn.Module):
    def __init__(self, num_blocks: int, **how: Any) -> None:
        super().__init__()
        self.inp, self.out = nn.Linear(5, D), nn.Linear(D, 3)
        self.blocks = nn.ModuleList(Block() for _ in range(num_blocks))
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inp(x)
        for block in self.blocks:
            x = checkpoint(block, x, **self.how) if self.how else block(x)
        return self.out(x)


def seeded(make: Any) -> Any:
    torch.manual_seed(0)
    return make()


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_counts_once(reentrant: bool) -> None:
    bare = watched(seeded(lambda: Checkpointed(3)), torch.ones(2, 5))
    seen = watched(seeded(lambda: Checkpointed(3, use_reentrant=reentrant)), torch.ones(2, 5))
    assert seen.structure.num_residual == 3
    assert [site.name for site in seen.structure.sites] == [site.name for site in bare.structure.sites]
    assert [site.addition.out is not None for site in seen.structure.sites] == [True] * 3
    for site, other in zip(seen.structure.sites, bare.structure.sites, strict=True):
        assert [seen.number(h) for h in site.forward_handles()] == [bare.number(h) for h in other.forward_handles()]
    assert len(seen.station_grads) == 4
    assert seen.station_grads == bare.station_grads
    if not reentrant:
        assert [seen.number(flow.branch) for flow in seen.flows] == [bare.number(flow.branch) for flow in bare.flows]


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is:DeprecationWarning")
def test_scripted_child() -> None:
    """TorchScript runs without the Python interpreter; its graph is autograd's all the same."""
    model = nn.Sequential(nn.Linear(5, D), torch.jit.script(Block()), Block(), nn.Linear(D, 2))
    assert structure_of(model, torch.randn(3, 5)).num_residual == 2


def frozen_encoder(**how: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(D, 2, 16, batch_first=True, **how)
    frozen = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).requires_grad_(False).eval()
    return nn.Sequential(frozen, nn.Linear(D, 2))


def test_fused_path_of_frozen_encoder_layers_is_taken_and_confessed() -> None:
    """A mode of ours would keep torch from taking it, and the step would not be the bare one any more."""
    model, x = frozen_encoder(), torch.randn(3, 5, D)
    bare = plain_loss(model(x))
    seen = watched(model, x)
    assert seen.loss.item() == bare.item()
    what, why = seen.structure.confessions[0]
    assert "0.layers.0, 0.layers.1" in what
    assert "_transformer_encoder_layer_fwd" in why


def test_encoder_layers_that_are_not_fused_confess_nothing() -> None:
    for model in (frozen_encoder(bias=False), frozen_encoder().train(), frozen_encoder().requires_grad_(True)):
        assert not [what for what, _ in structure_of(model, torch.randn(3, 5, D)).confessions if "inside" in what]


def test_values_inside_vmap_are_not_read() -> None:
    class Ensemble(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.Parameter(torch.randn(4, D, D))
            self.inp = nn.Linear(5, D)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.inp(x)
            return torch.func.vmap(lambda w: x + torch.tanh(x @ w))(self.weights)

    seen = watched(Ensemble(), torch.randn(3, 5))
    assert torch.isfinite(seen.loss)


def test_identity_of_tensors_is_kept() -> None:
    class Picky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inp, self.same, self.f = nn.Linear(5, D), nn.Identity(), nn.Linear(D, D)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.inp(x)
            y = x
            y += torch.tanh(self.f(x.clone()))
            assert y is x
            assert self.same(x) is x
            return x

    assert structure_of(Picky(), torch.randn(3, 5)).num_residual == 1


def test_hidden_addition_is_confessed() -> None:
    class Reversible(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, weight)
            return x + torch.tanh(x @ weight)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x, weight = ctx.saved_tensors
            inner = gradient * (1 - torch.tanh(x @ weight) ** 2)
            return gradient + inner @ weight.T, x.T @ inner

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inp, self.weight = nn.Linear(5, D), nn.Parameter(torch.randn(D, D))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Reversible.apply(self.inp(x), self.weight)

    structure = structure_of(Net(), torch.randn(3, 5))
    assert structure.num_residual == 0
    assert any("Reversible" in what for what, _ in structure.confessions)


def test_unused_output_counts_without_gradient() -> None:
    class TwoHeads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inp, self.used, self.unused = nn.Linear(5, D), Block(), Block()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.used(self.inp(x))
            self.unused(x)
            return x

    structure = structure_of(TwoHeads(), torch.randn(3, 5))
    assert [(site.module, site.alive) for site in structure.sites] == [("used", True), ("unused", False)]
    assert "unused.a.weight" not in structure.takes_part
    assert "used.a.weight" in structure.takes_part


def test_frozen_network_in_front_is_not_counted() -> None:
    class Adapter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen = nn.Sequential(nn.Linear(5, D), Block(), Block()).requires_grad_(False)
            self.own = Block()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                x = self.frozen(x)
            return self.own(x)

    assert [site.module for site in structure_of(Adapter(), torch.randn(3, 5)).sites] == ["own"]


def test_functional_forward_without_modules() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterList(torch.randn(D, D) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for weight in self.weights:
                x = x + F.linear(torch.relu(F.layer_norm(x, (D,))), weight)
            return x

    structure = structure_of(Functional(), torch.randn(3, D))
    assert structure.num_residual == 4
    assert len({site.name for site in structure.sites}) == 4
    assert [site.placement for site in structure.sites] == ["pre"] * 4


def test_nothing_is_left_behind_after_an_exception() -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.block(x)
            raise RuntimeError("half-way")

    model = Fails()
    before = nn.Module.__call__
    with pytest.raises(RuntimeError, match="half-way"), CallTracker(model) as calls, AdditionRecorder(calls, Rows()):
        model(torch.randn(3, D))
    assert not _get_current_function_mode_stack()
    assert nn.Module.__call__ is before
    assert not calls.listeners


def test_step_is_bitwise_the_same() -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(5, D), Block(), nn.Dropout(0.3), Block(), nn.Linear(D, 3)))
    x = torch.randn(7, 5)
    torch.manual_seed(1)
    loss = plain_loss(model(x))
    loss.backward()
    expected = {name: p.grad for name, p in model.named_parameters()}
    state = torch.get_rng_state()
    model.zero_grad()
    torch.manual_seed(1)
    seen = watched(model, x)
    assert torch.equal(seen.loss, loss)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(p.grad, expected[name]) for name, p in model.named_parameters())


def test_structure_is_used_again_on_later_steps() -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(5, D), Block(), Block(), nn.Linear(D, 3)))
    first = None
    numbers = []
    for _ in range(2):
        rows = Rows()
        with CallTracker(model) as calls:
            watch = StreamWatch(model, calls, rows, first)
            with watch.forward():
                loss = plain_loss(model(torch.ones(2, 5)))
            watch.before_backward((loss,))
            loss.backward()
            watch.close()
        assert watch.structure is not None
        assert first is None or watch.structure is first
        first = watch.structure
        values = rows.read()
        numbers.append([[None if h is None else values[h] for h in site] for site in watch.site_numbers()])
    assert numbers[0] == numbers[1]
    assert all(value is not None for site in numbers[0] for value in site)


def test_branch_that_is_skipped_at_random() -> None:
    """Another graph at another step is analysed anew, and its sites are found again in the first one's tables."""

    class Skips(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inp, self.blocks = nn.Linear(5, D), nn.ModuleList(Block() for _ in range(3))
            self.active = {0, 1, 2}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.inp(x)
            for i, block in enumerate(self.blocks):
                x = block(x) if i in self.active else x
            return x

    model = Skips()
    first = structure_of(model, torch.randn(3, 5))
    model.active = {0, 2}
    second = structure_of(model, torch.randn(3, 5))
    assert second.rows_in(first)[0] == [0, 2]
