"""The gradients through skip and branch are those that autograd computes for either alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gradscope.probe.structure.streams import StreamWatch
from gradscope.probe.watching.calls import CallTracker
from gradscope.probe.watching.rows import Rows
from tests.structure.watching import Seen, explicit_flows, plain_loss, watched

D = 12
TOLERANCE = 1e-10


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.q(x), self.k(x), self.v(x)
        return self.o((q @ k.transpose(-1, -2) / D**0.5).softmax(-1) @ v)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))


class PreNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n1, self.n2, self.attn, self.mlp = nn.LayerNorm(D), nn.LayerNorm(D), Attention(), mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.n1(x))
        return x + self.mlp(self.n2(x))


class PostNorm(PreNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.n1(x + self.attn(x))
        return self.n2(x + self.mlp(x))


class Parallel(PreNorm):
    """Two branches, each with a norm of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.attn(self.n1(x)) + self.mlp(self.n2(x))


class SharedNorm(PreNorm):
    """Two branches behind one norm: its gradient is the sum of both."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.n1(x)
        return x + self.attn(h) + self.mlp(h)


class Scaled(PreNorm):
    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((D,), 0.3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.add(0.9 * x, self.attn(self.n1(x)), alpha=0.5)
        return x + self.gamma * self.mlp(self.n2(x))


class Gated(PreNorm):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(D, D)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        g = torch.sigmoid(self.gate(x))
        x = g * self.mlp(x) + (1 - g) * x
        return torch.lerp(x, self.attn(x), 0.25)


class InPlace(PreNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.attn(self.n1(x))
        h += x
        h = h.relu_()
        return self.mlp(self.n2(h)).add_(h)


class Projected(PreNorm):
    def __init__(self) -> None:
        super().__init__()
        self.short = nn.Sequential(nn.Linear(D, D), nn.LayerNorm(D))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.mlp(x) + self.short(x))


class Stacked(PreNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x, self.attn(self.n1(x))]).sum(0)


class Fused(PreNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, D)
        x = torch.addmm(flat, torch.tanh(self.n1(flat)), self.mlp[0].weight[:D]).view_as(x)
        return torch.addcmul(x, torch.sigmoid(self.attn.q(x)), self.mlp(x), value=0.5)


class Nested(PreNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = x + self.attn(self.n1(x))
        inner = inner + self.mlp(self.n2(inner))
        return x + 0.2 * inner


BLOCKS: dict[type[nn.Module], int] = {
    PreNorm: 2, PostNorm: 2, Parallel: 2, SharedNorm: 2, Scaled: 2, Gated: 2, InPlace: 2, Projected: 1, Stacked: 1,
    Fused: 2, Nested: 3,
}  # fmt: skip


def network(block: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, D), block(), block(), block(), nn.LayerNorm(D), nn.Linear(D, 3)).double()


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.__name__)
def test_equals_explicit_autograd(block: type[nn.Module]) -> None:
    model = network(block)
    x = torch.randn(3, 4, 5, dtype=torch.float64)
    seen = watched(model, x, retain=True)
    assert seen.structure.num_residual == 3 * BLOCKS[block]
    expected = explicit_flows(seen.structure, seen.loss)
    for site, flow, truth in zip(seen.structure.sites, seen.flows, expected, strict=True):
        assert truth is not None, site.name
        measured = [seen.number(handle) for handle in (flow.grad, flow.skip, flow.branch, flow.dot)]
        assert measured == pytest.approx(truth, rel=TOLERANCE, abs=TOLERANCE), site.name


def test_two_backward_passes_add_up() -> None:
    """With a retained graph the gradients of both passes are one step's."""
    model = network(PreNorm)
    x = torch.randn(3, 4, 5, dtype=torch.float64)
    once = watched(model, x, retain=True)
    twice = watched_twice(model, x)
    for one, two in zip(once.flows, twice.flows, strict=True):
        for name in ("grad", "skip", "branch"):
            single = once.number(getattr(one, name))
            assert single is not None
            assert twice.number(getattr(two, name)) == pytest.approx(2 * single, rel=TOLERANCE)


def watched_twice(model: nn.Module, x: torch.Tensor) -> Seen:
    rows = Rows()
    with CallTracker(model) as calls:
        watch = StreamWatch(model, calls, rows)
        with watch.forward():
            loss = plain_loss(model(x))
        for retains in (True, True):
            watch.before_backward((loss,), retains=retains)
            loss.backward(retain_graph=True)
            watch.after_backward()
        flows, structure = watch.flows, watch.structure
        watch.close()
    assert flows is not None
    assert structure is not None
    return Seen(structure, loss, flows.sites, [], rows.read())


def test_hooks_are_gone_and_gradients_unchanged() -> None:
    model = network(SharedNorm)
    x = torch.randn(3, 4, 5, dtype=torch.float64)
    loss = watched(model, x).loss
    grads = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    bare = plain_loss(model(x))
    bare.backward()
    assert torch.equal(bare, loss)
    for name, parameter in model.named_parameters():
        assert (parameter.grad is None) == (grads[name] is None)
        assert parameter.grad is None or torch.equal(parameter.grad, grads[name])


def test_flows_of_a_coupling_are_those_of_its_own_half() -> None:
    """A split sends back what comes to both halves: skip and branch are read at the parts."""

    class Coupled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.f, self.g, self.head = nn.Linear(4, 8), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a, b = self.stem(x).chunk(2, -1)
            self.read, self.kept = a, b
            self.worked = torch.tanh(self.f(a))
            self.first = b + self.worked
            second = a + torch.tanh(self.g(self.first))
            return self.head(torch.cat([self.first, second], -1))

    model = Coupled().double()
    seen = watched(model, torch.randn(3, 4, dtype=torch.float64), retain=True)
    (through,) = torch.autograd.grad(seen.loss, model.first, retain_graph=True)
    (branch,) = torch.autograd.grad(model.worked, model.read, through, retain_graph=True)
    flow = seen.flows[0]
    expected = [float(through.norm()), float(through.norm()), float(branch.norm())]
    assert [seen.number(h) for h in (flow.grad, flow.skip, flow.branch)] == pytest.approx(expected, rel=1e-9)
    assert flow.dot is None


def test_gradient_of_a_branch_that_is_used_elsewhere_is_no_number() -> None:
    """What its first layer sends back holds the other use as well, and nothing tells how much."""

    class Forked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = torch.relu(self.a(x))
            return (x + self.b(hidden)) * (1.0 + 100.0 * hidden.mean())

    seen = watched(nn.Sequential(nn.Linear(4, 6), Forked(), nn.Linear(6, 2)), torch.randn(5, 4))
    flow = seen.flows[0]
    assert flow.grad is not None
    assert flow.branch is None
    assert flow.dot is None
    assert seen.structure.confessions[0][0] == "the branch's gradient alone at 1 + a … b"
