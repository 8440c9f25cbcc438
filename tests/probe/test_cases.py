"""Every shared case: the same loss and gradients as without us, and the norms that plain autograd gives."""

import copy
import math

import pytest
import torch

from gradscope.errors import LossError
from gradscope.probe import measure
from gradscope.probe.session import Session
from gradscope.probe.settings import ProbeSettings
from tests.probe import shared_cases

pytestmark = pytest.mark.skipif(not shared_cases.NAMES, reason="GRADSCOPE_SHARED does not point to the shared cases")
ONE_STEP = ProbeSettings(num_steps=1, watched_steps=(0,), device="cpu", jacobian=False)
NOISE = 1e-7
"""Gradients that are zero but for rounding (a bias before a norm) differ from machine to machine."""


def close(got, expected, rel=1e-5):
    expected = float(expected) if isinstance(expected, str) else expected
    if got is None or expected is None:
        return got is None and expected is None
    if math.isnan(got) or math.isnan(expected):
        return math.isnan(got) and math.isnan(expected)
    return got == expected or abs(got - expected) <= max(rel * max(abs(got), abs(expected)), NOISE)


@pytest.fixture(scope="module")
def truths():
    return shared_cases.truth()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", shared_cases.NAMES)
def test_norms_are_those_of_plain_autograd(name, truths):
    case, truth = shared_cases.load(name), truths[name]
    subject = shared_cases.subject(case)
    if not any(p.requires_grad for p in subject.model.parameters()):
        with pytest.raises(LossError):
            measure(subject, ONE_STEP)
        return
    tables = measure(subject, ONE_STEP).tables

    assert close(tables["steps"]["loss"][0], truth["loss"])
    names = tables["parameters"]["name"]
    rows = zip(tables["parameter_stats"]["parameter"], tables["parameter_stats"]["grad_norm"], strict=True)
    grads = {names[row]: norm for row, norm in rows}
    for parameter, norm in truth["param_grad_norm"].items():
        assert close(grads[parameter], norm), parameter

    calls, stats = tables["calls"], tables["call_stats"]
    found = {
        (calls["module"][row], calls["call"][row]): norm
        for row, norm in zip(stats["call"], stats["grad_norm"], strict=True)
    }
    for module, rows in truth["activation_grad_norm"].items():
        for row in rows:
            if row["out"] == 0:
                assert close(found[module, row["call"]], row["grad_norm"], 1e-4), (module, row["call"])
    counts = {}
    for module in calls["module"]:
        counts[module] = counts.get(module, 0) + 1
    assert {module: counts.get(module) for module in truth["calls"]} == truth["calls"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", shared_cases.NAMES)
def test_watched_step_is_bitwise_the_bare_one(name):
    bare, watched = (shared_cases.subject(shared_cases.load(name)) for _ in range(2))
    if not any(p.requires_grad for p in bare.model.parameters()):
        pytest.skip("nothing to back-propagate to")

    def step(subject):
        batch = subject.batches[0]
        torch.manual_seed(0)
        loss = subject.loss(subject.call(batch), batch)
        loss.backward()
        grads = {n: None if p.grad is None else p.grad.clone() for n, p in subject.model.named_parameters()}
        return loss.detach(), grads, buffers(subject)

    def buffers(subject):
        return {n: b.detach().clone() for n, b in subject.model.named_buffers()}

    loss, grads, after = step(bare)
    session = Session(watched.model, "default", shared_cases.FOLDER)
    batch = watched.batches[0]
    torch.manual_seed(0)
    with session.step(0) as watch:
        with watch.forward():
            watched_loss = watched.loss(watched.call(batch), batch)
        watched_loss.backward()

    assert same(watched_loss, loss)
    for parameter, grad in grads.items():
        own = dict(watched.model.named_parameters())[parameter].grad
        assert (own is None) == (grad is None), parameter
        assert grad is None or same(own, grad), parameter
    for buffer, value in buffers(watched).items():
        assert same(value, after[buffer]), buffer


def same(a, b):
    if a.is_meta:
        return b.is_meta and a.shape == b.shape
    a, b = (torch.nan_to_num(x.detach().to_dense(), nan=12.5) for x in (a, b))
    return torch.equal(a, b)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", shared_cases.NAMES)
def test_model_is_left_as_it_was(name):
    subject = shared_cases.subject(shared_cases.load(name))
    if not any(p.requires_grad for p in subject.model.parameters()):
        pytest.skip("nothing to back-propagate to")
    model = subject.model
    state = copy.deepcopy(model.state_dict())
    modes = {n: m.training for n, m in model.named_modules()}
    flags = {n: p.requires_grad for n, p in model.named_parameters()}
    attributes = {n: set(vars(m)) for n, m in model.named_modules()}
    random_state = torch.get_rng_state()
    measure(subject, ProbeSettings(num_steps=2, watched_steps=(0, 1), device="cpu", jacobian=False))
    for key, value in model.state_dict().items():
        assert same(value, state[key]), key
    assert {n: m.training for n, m in model.named_modules()} == modes
    assert {n: p.requires_grad for n, p in model.named_parameters()} == flags
    assert {n: set(vars(m)) for n, m in model.named_modules()} == attributes
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), random_state)
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module._backward_hooks
