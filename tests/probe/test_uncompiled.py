"""Optimizers and pull-backs without torch's compiler: the same numbers, and a second less."""

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

from gradscope.probe import uncompiled
from gradscope.probe.watching.optimizers import OPTIMIZERS, build


@pytest.fixture
def not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the compiler for not loaded, whatever other tests have imported."""
    monkeypatch.setattr(uncompiled, "_COMPILER", "a module that nobody loads")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_torch_bit_for_bit(name: str, not_loaded: None) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    other = copy.deepcopy(model)
    ours, theirs = build(name, model, 0.01, None), OPTIMIZERS[name](other.parameters(), lr=0.01)
    assert ours is not None
    for _ in range(4):
        x = torch.randn(6, 5)
        for net in (model, other):
            net.zero_grad()
            net(x).square().mean().backward()
        uncompiled.take_step(ours)
        theirs.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    assert not torch.equal(next(model.parameters()), torch.zeros(7, 5))


def test_hooks_on_an_optimizer_are_called(not_loaded: None) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    model(torch.ones(1, 2)).sum().backward()
    uncompiled.take_step(optimizer)
    assert seen == ["before"]


def test_an_optimizer_of_the_users_takes_its_own_step(not_loaded: None) -> None:
    class Mine(torch.optim.SGD):
        steps = 0

        def step(self, closure: object = None) -> None:  # type: ignore[override]
            self.steps += 1

    optimizer = Mine(nn.Linear(2, 1).parameters(), lr=0.1)
    uncompiled.take_step(optimizer)
    assert optimizer.steps == 1


def test_nothing_of_torch_stays_changed(not_loaded: None) -> None:
    before = torch.optim.Optimizer.add_param_group
    with pytest.raises(ValueError, match="Invalid learning rate"), uncompiled.building():
        torch.optim.Adam(nn.Linear(2, 1).parameters(), lr=-1.0)
    assert torch.optim.Optimizer.add_param_group is before


def test_a_pull_back_is_that_of_autograd() -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    y = torch.tanh(x) @ torch.randn(4, 2, dtype=torch.float64)
    v = torch.randn_like(y)
    ours = uncompiled.pull_back(get_gradient_edge(y), get_gradient_edge(x), v)
    (theirs,) = torch.autograd.grad(y, x, v, retain_graph=True)
    assert ours is not None
    assert torch.equal(ours, theirs)
    other = torch.ones(1, requires_grad=True)
    assert uncompiled.pull_back(get_gradient_edge(y), get_gradient_edge(other), v) is None


def test_an_inspection_does_not_load_the_compiler() -> None:
    code = (
        "import sys\n"
        "from gradscope.__main__ import main\n"
        "assert main(['inspect', 'builtin:pre-ln', '-a', 'layers=2']) == 0\n"
        "print([name for name in ('torch._dynamo', 'sympy') if name in sys.modules])\n"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[-1] == "[]"
