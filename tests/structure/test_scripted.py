"""TorchScript children: each of their residual additions is seen, in every call, and the step is left as it is."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.structure.watching import explicit_flows, plain_loss, structure_of, watched

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated")
D = 8


class Child(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.norm = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D), nn.LayerNorm(D)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.a(x)
        x = x + torch.relu(self.b(self.norm(x)))
        return x + 0.5 * torch.tanh(self.c(x))


class Named(nn.Module):
    """Calls its scripted child with its argument's name, so that it cannot be run again."""

    def __init__(self) -> None:
        super().__init__()
        self.child = torch.jit.script(Child())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.child(x=x)
        return out


def fresh() -> nn.Module:
    """Return a child of a class of its own: TorchScript counts the runs of all modules of one class."""
    kind = type("Child", (Child,), {"forward": Child.forward, "__init__": Child.__init__})
    return torch.jit.script(kind())


def fused(model: nn.Module, *inputs: torch.Tensor) -> nn.Module:
    """Run a model until TorchScript has made one operation of many."""
    for _ in range(3):
        plain_loss(model(*inputs)).backward()
    return model


def test_additions_of_a_scripted_child_are_seen_in_every_call() -> None:
    model, x = nn.Sequential(nn.Linear(D, D), fresh(), fresh(), nn.Linear(D, D)), torch.randn(4, D)
    for _ in range(4):
        structure = structure_of(model, x)
        assert [site.name for site in structure.sites] == [f"{i} + {name}" for i in (1, 2) for name in "abc"]
        assert [site.placement for site in structure.sites] == ["none", "pre", "none"] * 2
        assert [(site.kind, site.branch_scale) for site in structure.sites[1:3]] == [("identity", 1.0), ("scaled", 0.5)]
        assert not [what for what, _ in structure.confessions if "residual additions" in what]
    why = dict(structure.confessions)
    assert why["gradients through skip and branch at 1 + a, 1 + b, 1 + c and 3 more"].startswith("TorchScript")


def test_gradients_around_a_scripted_branch_are_exact() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = fresh()
            self.branch = torch.jit.script(nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, D)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.block(x)
            return x + self.branch(x)

    x = torch.randn(4, D, requires_grad=True, dtype=torch.float64)
    seen = watched(fused(Net().double(), x), x, retain=True)
    assert seen.structure.num_residual == 4
    assert seen.structure.sites[-1].name == "+ branch"
    flow, truth = seen.flows[-1], explicit_flows(seen.structure, seen.loss)[-1]
    assert truth is not None
    assert [seen.number(h) for h in (flow.grad, flow.skip, flow.branch, flow.dot)] == pytest.approx(truth, rel=1e-9)


def test_a_child_that_cannot_be_run_again_is_confessed_by_name() -> None:
    model, x = nn.Sequential(nn.Linear(D, D), Named(), nn.Linear(D, D)), torch.randn(4, D)
    found = structure_of(fused(model, x), x).confessions
    assert "residual additions that TorchScript runs inside 1.child" in dict(found)


def test_watching_a_scripted_child_changes_no_number() -> None:
    def trained(*, watch: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(D, D), fresh(), nn.Dropout(0.5), nn.Linear(D, 2))
        optimizer, x, numbers = torch.optim.SGD(model.parameters(), 0.1), torch.randn(4, D), []
        for _ in range(4):
            optimizer.zero_grad()
            if watch:
                numbers.append(watched(model, x).loss.detach())
            else:
                loss = plain_loss(model(x))
                loss.backward()
                numbers.append(loss.detach())
            optimizer.step()
        return [*numbers, *(p.detach() for p in model.parameters()), torch.rand(1)]

    assert all(map(torch.equal, trained(watch=False), trained(watch=True)))
