"""Loops that never clear their gradients are told from all those that do, wherever and however they do it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import gradscope
from gradscope.rules import diagnose

Loop = Callable[[nn.Module, torch.optim.Optimizer, Callable[[], Tensor], int], None]


def before(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor], step: int) -> None:
    optimizer.zero_grad()
    loss().backward()
    optimizer.step()


def between(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor], step: int) -> None:
    value = loss()
    optimizer.zero_grad(set_to_none=False)
    value.backward()
    optimizer.step()


def after(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor], step: int) -> None:
    loss().backward()
    optimizer.step()
    model.zero_grad()


def by_hand(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor], step: int) -> None:
    for parameter in model.parameters():
        parameter.grad = None
    loss().backward()
    optimizer.step()


def accumulating(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor], step: int) -> None:
    for _ in range(3):
        loss().backward()
    optimizer.step()
    optimizer.zero_grad()


def closure(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor], step: int) -> None:
    def evaluate() -> float:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return float(value.detach())

    optimizer.step(evaluate)


def never(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor], step: int) -> None:
    loss().backward()
    optimizer.step()


def too_rarely(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor], step: int) -> None:
    loss().backward()
    optimizer.step()
    if step % 4 == 3:
        optimizer.zero_grad()


def findings(loop: Loop, every: int = 1) -> list[str]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with gradscope.watch(model, every=every) as scope:
        for step in range(8):
            loop(model, optimizer, lambda: model(torch.randn(6, 8)).square().mean(), step)
    return [finding.code for finding in diagnose(scope.recording).findings]


@pytest.mark.parametrize("loop", [before, between, after, by_hand, accumulating, closure])
def test_loops_that_clear(loop: Loop) -> None:
    assert "GS503" not in findings(loop)


@pytest.mark.parametrize("loop", [never, too_rarely])
def test_loops_that_do_not(loop: Loop) -> None:
    assert "GS503" in findings(loop)


def test_a_sampled_watch_sees_it_as_well() -> None:
    assert "GS503" in findings(never, every=3)
    assert "GS503" not in findings(after, every=3)


def test_two_optimizers_that_each_clear_their_own() -> None:
    """A generator and a discriminator in one model: what the other's loss leaves is cleared before it is used."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"g": nn.Linear(4, 8), "d": nn.Linear(8, 1)})
    optimizers = {name: torch.optim.SGD(part.parameters(), lr=0.01) for name, part in model.items()}

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.parts["d"](self.parts["g"](x))
            return out

    both = Both()
    with gradscope.watch(both, every=1) as scope:
        for _ in range(6):
            for sign, name in ((1, "g"), (-1, "d")):
                optimizers[name].zero_grad()
                (sign * both(torch.randn(6, 4)).square().mean()).backward()
                optimizers[name].step()
    assert "GS503" not in [finding.code for finding in diagnose(scope.recording).findings]


def test_gradients_that_are_replaced_and_not_added_to() -> None:
    """`autograd.grad` adds to nothing: what `.grad` held before the pass is overwritten by the loop itself."""

    def replaced(
        model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor], step: int
    ) -> None:
        parameters = list(model.parameters())
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss(), parameters), strict=True):
            parameter.grad = gradient
        optimizer.step()

    assert "GS503" not in findings(replaced)
