"""`watch` around loops that are not ours: the right steps, no change to any number, nothing left attached."""

import copy
import gc
import math

import pytest
import torch
from torch import nn

from gradscope.probe.watch import watch
from gradscope.probe.watching import calling, optimizing
from tests.probe.oracle import plain_norm


def test_garbage_is_searched_for_as_often_as_before_once_a_step_is_over():
    model, before, seen = net(), gc.get_threshold(), []
    model[1].register_forward_hook(lambda *_: seen.append(gc.get_threshold()[0]))
    with watch(model, every=2):
        for x in batches(2):
            model(x).sum().backward()
            torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert seen[0] > before[0], "rarer while a step is watched"
    assert gc.get_threshold() == before
    gc.disable()
    try:
        with watch(model):
            model(batches(1)[0]).sum().backward()
        assert not gc.isenabled(), "whoever has switched it off keeps it off"
    finally:
        gc.enable()


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 2))


def batches(count):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(5, 6, generator=generator) for _ in range(count)]


def train(model, steps=7, accumulate=1, set_to_none=True, validate=False, clip=None, by_hand=False):
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses, norms = [], []
    for x in batches(steps):
        optimizer.zero_grad(set_to_none=set_to_none)
        for part in x.chunk(accumulate):
            loss = model(part).square().mean() / accumulate
            loss.backward()
        norms.append({n: plain_norm(p.grad) for n, p in model.named_parameters()})
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        if by_hand:
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(0.1 * p.grad)
        else:
            optimizer.step()
        losses.append(loss.item())
        if validate:
            with torch.no_grad():
                model.eval()(x)
                model.train()
    return losses, norms


def nothing_attached():
    return (
        nn.Module.__call__.__name__ == "_wrapped_call_impl"
        and torch.autograd._engine_run_backward.__module__ == "torch.autograd.graph"
        and nn.Module.zero_grad.__qualname__ == "Module.zero_grad"
        and torch.optim.Optimizer.zero_grad.__qualname__ == "Optimizer.zero_grad"
    )


def recorded_norms(recording, step):
    names = recording.tables["parameters"]["name"]
    return {names[r["parameter"]]: r["grad_norm"] for r in recording.rows("parameter_stats") if r["step"] == step}


@pytest.mark.parametrize(
    "how",
    [{}, {"accumulate": 2}, {"set_to_none": False}, {"validate": True}, {"clip": 1e-3}, {"by_hand": True}],
    ids=lambda how: next(iter(how), "plain"),
)
def test_every_third_step_is_recorded_and_no_number_changes(how):
    losses, norms = train(net(), **how)
    model = net()
    with watch(model, every=3) as scope:
        own_losses, _ = train(model, **how)
    assert own_losses == losses
    recording = scope.recording
    assert recording.watched_steps == [0, 3, 6]
    for step in recording.watched_steps:
        assert recorded_norms(recording, step) == pytest.approx(norms[step], rel=1e-6)
    if "accumulate" not in how:
        assert recording.tables["steps"]["loss"] == [losses[0], losses[3], losses[6]]
        assert set(recording.tables["calls"]["call"]) == {0}
    assert nothing_attached()


def test_nothing_is_attached_on_steps_that_are_not_watched():
    model, seen = net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, every=3):
        for x in batches(7):
            seen.append(not nothing_attached())
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    # The first step ends when the next forward shows that no other optimizer steps after this one.
    assert seen == [True, True, False, True, False, False, True]
    assert not optimizing._listeners
    assert not calling._active
    assert not calling._sentinels


def test_recording_can_be_read_while_the_loop_runs_and_after_an_exception():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scope = watch(model, every=1)

    def loop():
        with scope:
            for i, x in enumerate(batches(5)):
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()
                if i == 2:
                    assert scope.recording.watched_steps == [0, 1, 2]
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop()
    assert scope.recording.watched_steps == [0, 1, 2]
    assert scope.recording.num_rows("modules") == 5
    assert scope.recording.provenance.optimizer == "sgd"
    assert scope.recording.provenance.batch_shape == "5x6 float32"
    assert nothing_attached()


def test_update_norms_are_those_of_the_optimizer():
    model = net()
    before = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, every=100) as scope:
        model(batches(1)[0]).sum().backward()
        optimizer.step()
    for row, (name, p) in zip(scope.recording.rows("parameter_stats"), model.named_parameters(), strict=True):
        change = p.detach() - dict(before.named_parameters())[name].detach()
        assert row["update_norm"] == pytest.approx(plain_norm(change), rel=1e-6)


def test_adversarial_pair_gives_each_network_its_own_steps():
    torch.manual_seed(0)
    maker, critic = nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (maker, critic)]
    expected = []
    with watch(maker, every=1) as maker_scope, watch(critic, every=1) as critic_scope:
        for real in torch.randn(3, 8, 4):
            optimizers[1].zero_grad()
            fake = maker(torch.randn(8, 3))
            (critic(fake.detach()).mean() - critic(real).mean()).backward()
            critic_norms = {n: plain_norm(p.grad) for n, p in critic.named_parameters()}
            optimizers[1].step()
            optimizers[0].zero_grad()
            (-critic(fake).mean()).backward()
            expected.append((critic_norms, {n: plain_norm(p.grad) for n, p in maker.named_parameters()}))
            optimizers[0].step()
    for step, (critic_norms, maker_norms) in enumerate(expected):
        assert recorded_norms(critic_scope.recording, step) == pytest.approx(critic_norms, rel=1e-6)
        assert recorded_norms(maker_scope.recording, step) == pytest.approx(maker_norms, rel=1e-6)
    assert maker_scope.recording.watched_steps == [0, 1, 2]
    assert critic_scope.recording.watched_steps == [0, 1, 2]
    assert set(critic_scope.recording.tables["calls"]["call"]) == {0, 1}
    assert set(maker_scope.recording.tables["calls"]["call"]) == {0}


def test_two_optimizers_that_step_together_make_one_step():
    model = net()
    optimizers = [torch.optim.SGD(model[i].parameters(), lr=0.1) for i in (0, 3)]
    with watch(model, every=2) as scope:
        for x in batches(5):
            for optimizer in optimizers:
                optimizer.zero_grad()
            model(x).sum().backward()
            for optimizer in optimizers:
                optimizer.step()
    assert scope.recording.watched_steps == [0, 2, 4]
    assert all(row["update_norm"] > 0 for row in scope.recording.rows("parameter_stats"))


def test_step_that_a_grad_scaler_skips_is_an_event():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    with watch(model, every=1) as scope:
        for x in batches(2):
            optimizer.zero_grad()
            scaler.scale(model(x).square().mean() * 1e6).backward()
            scaler.step(optimizer)
            scaler.update()
    assert scope.recording.watched_steps[0] == 0
    assert "skipped" in scope.recording.tables["events"]["kind"]
    assert nothing_attached()


def test_residual_sites_are_found_in_a_loop():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(6, 6)

        def forward(self, x):
            return x + torch.tanh(self.lin(x))

    model = nn.Sequential(nn.Linear(6, 6), Block(), Block(), nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, every=1) as scope:
        for x in batches(2):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    recording = scope.recording
    assert [row["module"] for row in recording.rows("sites")] == ["1", "2"]
    assert recording.num_rows("site_stats") == 4
    assert all(row["branch_grad_norm"] > 0 for row in recording.rows("site_stats"))


def test_arguments_that_make_no_sense():
    with pytest.raises(TypeError, match="not a str"):
        watch("model")
    with pytest.raises(ValueError, match="at least 1"):
        watch(net(), every=0)
    with pytest.raises(ValueError, match="params, default, deep"):
        watch(net(), level="loud")


def test_scope_is_used_again_and_nests():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        model(batches(1)[0]).sum().backward()
        optimizer.step()

    outer, inner = watch(model, every=1), watch(model, every=2)
    with outer:
        step()
        with inner:
            for _ in range(3):
                step()
        step()
    with inner:
        step()
        step()
    assert outer.recording.watched_steps == [0, 1, 2, 3, 4]
    assert inner.recording.watched_steps == [0, 2, 4]
    assert nothing_attached()


def test_loss_that_is_infinite_only_when_scaled_is_no_fault():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    with watch(model, every=1) as scope:
        for x in batches(3):
            optimizer.zero_grad()
            loss = model(x).square().mean() * 1e-4 + 3.0
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    losses = scope.recording.tables["steps"]["loss"]
    assert all(3.0 < loss < 3.1 for loss in losses)
    kinds = scope.recording.tables["events"]["kind"]
    assert "nonfinite_forward" not in kinds


def test_attempts_that_a_grad_scaler_skips_are_no_steps():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    taken, scale = 0, scaler.get_scale()
    with watch(model, every=1) as scope:
        for x in batches(20):
            optimizer.zero_grad()
            scaler.scale(model(x).square().mean() * 1e3).backward()
            scaler.step(optimizer)
            scaler.update()
            taken += scaler.get_scale() >= scale
            scale = scaler.get_scale()
    recording = scope.recording
    assert 0 < taken < 20
    assert recording.watched_steps == list(range(taken))
    assert all(math.isfinite(norm) for norm in recording.tables["steps"]["grad_norm"])
    (event,) = recording.rows("events")
    assert (event["kind"], event["step"]) == ("rescaled", 0)
    assert f"{20 - taken} attempts" in event["detail"]


def test_an_optimizer_steps_without_our_modes():
    model, depths = net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: depths.append(torch._C._len_torch_function_stack()))
    model[1].register_forward_hook(lambda *_: depths.append(torch._C._len_torch_function_stack()))
    with watch(model, every=1):
        for x in batches(2):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    assert depths[0] > 0, "they are on in the forward"
    assert depths[1::2] == [0, 0], "what an optimizer asks of parameters is none of their business"
