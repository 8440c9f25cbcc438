"""Things that must not fool the watcher: each changes no number and gives the norms of plain autograd.

`test_trap_list` names the test of each, here or in another file.
"""

import inspect
import sys
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from gradscope.probe.session import Session
from tests.probe.oracle import activation_norms, call_norms, check, parameter_norms, plain_norm, watched_step

D = 6
Pair = namedtuple("Pair", "left right")


def x(*shape):
    return torch.randn(*(shape or (4, D)), generator=torch.Generator().manual_seed(1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(D), nn.Linear(D, D), nn.Linear(D, D)
        self.drop = nn.Dropout(0.3)

    def forward(self, h):
        return h + self.b(self.drop(torch.tanh(self.a(self.norm(h)))))


class Stack(nn.Module):
    def __init__(self, how="plain", shared=False):
        super().__init__()
        self.stem, self.head = nn.Linear(D, D), nn.Linear(D, 3)
        self.blocks = nn.ModuleList([Block()] * 3 if shared else [Block() for _ in range(3)])
        self.how = how

    def forward(self, h):
        h = self.stem(h)
        for block in self.blocks:
            h = block(h) if self.how == "plain" else checkpoint(block, h, use_reentrant=self.how == "reentrant")
        return self.head(h).square().mean()


def run(model):
    return model(x())


@pytest.mark.parametrize("shared", [False, True], ids=["apart", "shared"])
def test_nonreentrant_checkpointing(shared):
    session = check(lambda: Stack("nonreentrant", shared), run)
    plain = check(lambda: Stack("plain", shared), run)
    assert call_norms(session) == pytest.approx(call_norms(plain))


@pytest.mark.parametrize("shared", [False, True], ids=["apart", "shared"])
def test_reentrant_checkpointing_counts_calls_once_and_finds_inner_gradients(shared):
    session = check(lambda: Stack("reentrant", shared), run, activations=False)
    plain = check(lambda: Stack("plain", shared), run)
    assert call_norms(session) == pytest.approx(call_norms(plain))


def test_inplace_relu_and_inplace_residual():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn, self.relu = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(inplace=True)
            self.out = nn.Conv2d(3, 2, 1)

        def forward(self, h):
            first = self.relu(self.bn(self.conv(h)))
            second = self.bn(self.conv(first))
            second += first
            return self.out(self.relu(second)).square().mean()

    check(Net, lambda m: m(x(2, 3, 5, 5)))


def test_nested_outputs_and_none():
    @dataclass
    class Out:
        hidden: torch.Tensor
        extra: object = None

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.l, self.r = nn.Linear(D, D), nn.Linear(D, D)

        def forward(self, h):
            return {"pair": Pair(self.l(h), self.r(h)), "none": None, "n": 3, "index": torch.arange(3)}

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.nothing = Inner(), nn.ReLU()

        def forward(self, h):
            pair = self.inner(h)["pair"]
            return Out(pair.left * pair.right, extra=[{"skip": pair.left}, (None,)])

    def step(model):
        out = model(x())
        return (out.hidden + out.extra[0]["skip"]).sum()

    assert call_norms(check(Outer, step))["inner", 0] is not None


def test_module_that_returns_nothing_and_module_that_returns_its_input():
    class Silent(nn.Module):
        def forward(self, h):
            self.seen = 1

    class Same(nn.Module):
        def forward(self, h):
            return h

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.silent, self.same, self.lin = Silent(), Same(), nn.Linear(D, D)

        def forward(self, h):
            self.silent(h)
            out = self.same(h)
            assert out is h
            h = self.lin(h)
            assert self.same(h) is h
            return h.sum()

    check(Net, run)


def test_tied_parameters_and_shared_module():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(D, D), nn.Linear(D, D)
            self.b.weight = self.a.weight

        def forward(self, h):
            return self.b(torch.tanh(self.a(self.a(h)))).square().sum()

    session = check(Net, run)
    norms = parameter_norms(session)
    assert norms["b.weight"] == norms["a.weight"]
    assert session.tables.columns["parameters"]["shared_with"] == [None, None, "a.weight", None]
    assert {call for module, call in call_norms(session) if module == "a"} == {0, 1}


def test_frozen_unused_and_stale():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.frozen, self.unused = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)
            self.frozen.requires_grad_(False)

        def forward(self, h):
            return self.frozen(self.used(h)).sum()

    def stale():
        net = Net()
        net.unused.weight.grad = torch.ones(D, D)
        return net

    check(Net, run)
    _, _, session = watched_step(stale(), run)
    assert parameter_norms(session)["unused.weight"] is None
    assert parameter_norms(session)["used.weight"] is not None


def test_sparse_and_complex_gradients():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(20, D, sparse=True)
            self.w = nn.Parameter(torch.randn(D, D, dtype=torch.cfloat))
            self.to_complex = ToComplex()

        def forward(self, ids):
            return (self.to_complex(self.emb(ids)) @ self.w).abs().square().mean()

    class ToComplex(nn.Module):
        def forward(self, h):
            return torch.complex(h, 0.1 * h)

    check(Net, lambda m: m(torch.tensor([[1, 1, 2], [3, 1, 4]])))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(D, D)

        def forward(self, parts):
            h = torch.nested.as_nested_tensor(parts, layout=torch.jagged)
            return self.lin(h).values().square().mean()

    session = check(Net, lambda m: m([x(2, D), x(3, D)]))
    assert call_norms(session)["lin", 0] > 0


def test_custom_autograd_function_and_gradient_penalty():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            return value * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(D, D), nn.Softplus(), nn.Linear(D, 1))

        def forward(self, h):
            h = h.clone().requires_grad_()
            score = Double.apply(self.net(h))
            (slope,) = torch.autograd.grad(score.sum(), h, create_graph=True)
            return score.mean() + (slope.norm(dim=1) - 1).square().mean()

    check(Net, run)


def test_spectral_norm_whose_power_iteration_looks_at_the_weight_without_gradient():
    check(lambda: nn.Sequential(nn.utils.spectral_norm(nn.Linear(D, D)), nn.Tanh(), nn.Linear(D, 3)),
          lambda model: model(x()).square().mean())


def test_inner_loop_with_its_own_gradients():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(D, D)

        def forward(self, h):
            z = torch.zeros(4, D, requires_grad=True)
            for _ in range(3):
                (step,) = torch.autograd.grad((self.lin(z) - h).square().sum(), z)
                z = (z - 0.1 * step).detach().requires_grad_()
            return (self.lin(z) - h).square().mean()

    session = check(Net, run)
    assert call_norms(session)["lin", 0] is None
    assert call_norms(session)["lin", 3] > 0


def test_vmap_over_an_ensemble():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(D, 1)
            self.w = nn.Parameter(torch.randn(3, 1, D))
            self.b = nn.Parameter(torch.zeros(3, 1))

        def forward(self, h):
            def one(w, b):
                return torch.func.functional_call(self.one, {"weight": w, "bias": b}, (h,))

            return torch.func.vmap(one)(self.w, self.b).square().mean()

    check(Net, run)


def test_modules_used_without_being_called_and_attention():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.attention = nn.Linear(D, D), nn.MultiheadAttention(D, 2, batch_first=True)

        def forward(self, h):
            h = F.linear(h, self.lin.weight, self.lin.bias)[None]
            return self.attention(h, h, h)[0].square().sum()

    session = check(Net, run)
    assert parameter_norms(session)["attention.out_proj.weight"] > 0


def test_recurrent_module_of_which_only_the_last_state_is_used():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(D, D, batch_first=True)

        def forward(self, h):
            _, (last, _) = self.lstm(h)
            return last.square().mean()

    session = check(Net, lambda m: m(x(2, 3, D)), activations=False)
    assert call_norms(session)["lstm", 0] > 0


def test_data_dependent_control_flow_and_module_swapped_during_forward():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(D, D), nn.Linear(D, D)

        def forward(self, h):
            for _ in range(2 if h.sum() > -100 else 1):
                h = self.a(h)
            self.late = self.b  # found although it was not there when watching began
            other = nn.ReLU()
            return self.late(other(h)).sum()

    session = check(Net, run)
    assert ("b", 0) in call_norms(session)
    assert {module for module, _ in call_norms(session)} == {"", "a", "b"}


def test_exception_half_way_leaves_the_numbering_intact():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(D, D)

        def forward(self, h, fail):
            h = self.lin(h)
            if fail:
                raise ValueError("no")
            return h

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.part, self.last = Fails(), nn.Linear(D, D)

        def forward(self, h):
            try:
                self.part(h, True)
            except ValueError:
                h = self.part(h, False)
            return self.last(h).sum()

    session = check(Net, run, activations=False)
    calls = session.tables.columns["calls"]
    rows = list(zip(calls["module"], calls["call"], calls["parent"], strict=True))
    assert [row[:2] for row in rows] == [("part.lin", 0), ("part.lin", 1), ("part", 0), ("last", 0), ("", 0)]
    assert rows[1][2] == 2
    assert rows[2][2] == 4


def test_optimizer_that_steps_inside_the_backward():
    def make():
        net = nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, 1))
        for p in net.parameters():
            p.register_post_accumulate_grad_hook(_step_and_clear)
        return net

    def step(m):
        return m(x()).square().mean()

    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, 1))
    step(plain).backward()
    torch.manual_seed(0)
    net = make()
    _, grads, session = watched_step(net, step)
    assert all(g is None for g in grads.values())
    for name, p in plain.named_parameters():
        assert parameter_norms(session)[name] == pytest.approx(plain_norm(p.grad), rel=1e-6)


def _step_and_clear(p):
    with torch.no_grad():
        p -= 0.1 * p.grad
    p.grad = None


def test_several_losses_and_several_backward_passes():
    def make():
        return nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, 2))

    torch.manual_seed(0)
    net = make()

    def both(model):
        out = model(x())
        return out[:, 0].sum() + out[:, 1].square().sum()

    expected = activation_norms(net, both)
    session = Session(net, "default", Path.cwd())
    with session.step(0) as watch:
        out = net(x())
        out[:, 0].sum().backward(retain_graph=True)
        out[:, 1].square().sum().backward()
    session.record(0, watch, None, None)
    assert call_norms(session) == pytest.approx(expected, rel=1e-6)
    for name, p in net.named_parameters():
        assert parameter_norms(session)[name] == pytest.approx(plain_norm(p.grad), rel=1e-6)


def test_gradient_accumulation_over_micro_batches():
    net = nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, 2))
    session = Session(net, "default", Path.cwd())
    with session.step(0) as watch:
        for part in x(8, D).split(2):
            (net(part).square().mean() / 4).backward()
    session.record(0, watch, None, None)
    assert {call for module, call in call_norms(session) if module == "0"} == {0, 1, 2, 3}
    for name, p in net.named_parameters():
        assert parameter_norms(session)[name] == pytest.approx(plain_norm(p.grad), rel=1e-6)


def test_gradients_scaled_by_a_grad_scaler_are_told_unscaled():
    torch.manual_seed(0)
    net = nn.Linear(D, 2)
    loss = net(x()).square().mean()
    loss.backward()
    expected = {n: plain_norm(p.grad) for n, p in net.named_parameters()}
    net.zero_grad()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    session = Session(net, "default", Path.cwd())
    with session.step(0) as watch:
        loss = net(x()).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
        scaler.step(optimizer)
        scaler.update()
    session.record(0, watch, None, None)
    assert parameter_norms(session) == pytest.approx(expected, rel=1e-6)
    steps = session.tables.columns["steps"]
    assert steps["loss_scale"] == [2.0**14]
    assert steps["loss"] == pytest.approx([loss.item()])
    assert torch.amp.GradScaler.scale.__module__ == "torch.amp.grad_scaler"


def test_deeply_nested_modules_need_no_deeper_stack():
    class Deep(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, h):
            return self.inner(h)

    def make():
        net = nn.Linear(D, D)
        for _ in range(200):
            net = Deep(net)
        return net

    limit, depth = sys.getrecursionlimit(), len(inspect.stack(0))
    net = make()
    try:
        for enough in range(depth + 500, depth + 2000, 20):
            sys.setrecursionlimit(enough)
            try:
                net(x())
            except RecursionError:
                continue
            break
        loss, _, session = watched_step(net, lambda m: m(x()).sum())  # where the bare model just about runs
        assert sys.getrecursionlimit() == enough
    finally:
        sys.setrecursionlimit(limit)
    assert session.tables.columns["steps"]["loss"] == [loss.item()]
    assert len(call_norms(session)) == 201


def test_torchscript_child_and_raw_input_skip():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(D, D)
            self.traced = Scripted()

        def forward(self, h):
            h = h + self.lin(h)
            return self.traced(h).sum()

    class Scripted(nn.Module):
        def forward(self, h):
            return torch.relu(h)

    check(Net, run)


def test_meta_and_quantised_parts():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.ghost = nn.Linear(D, D), nn.Linear(D, D, device="meta")

        def forward(self, h):
            self.ghost(torch.empty(2, D, device="meta"))
            return self.lin(h).sum()

    session = check(Net, run)
    assert any("meta" in why for why in session.tables.columns["confessions"]["why"])


def test_half_precision_and_huge_numbers():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(D, D).to(torch.bfloat16)

        def forward(self, h):
            return (self.lin(h.to(torch.bfloat16)).float() * 1e25).sum()

    session = check(Net, run, rel=1e-2)
    assert call_norms(session)["lin", 0] == pytest.approx(1e25 * (4 * D) ** 0.5, rel=1e-2)


def test_autocast():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(D, D), nn.Linear(D, D)

        def forward(self, h):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.b(torch.relu(self.a(h))).float().square().mean()

    check(Net, run)


def test_compiled_child_runs_eagerly_and_is_confessed():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = torch.compile(Block(), backend="eager")
            self.own = nn.Linear(D, D)
            self.own.compile(backend="eager")

        def forward(self, h):
            return self.own(self.block(h)).square().sum()

    torch.manual_seed(0)
    net = Net()
    forward = vars(net.block)["forward"]
    _, _, session = watched_step(net, run)
    norms = call_norms(session)
    assert norms["block._orig_mod.a", 0] > 0
    assert norms["own", 0] > 0
    assert vars(net.block)["forward"] is forward
    assert any("torch.compile" in why for why in session.tables.columns["confessions"]["why"])
