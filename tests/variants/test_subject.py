import pytest
import torch

from gradscope.variants import VARIANTS, build, subject

SMALL = {"transformer": {"layers": 2, "d_model": 16, "heads": 2}, "resnet": {"width": 4, "batch": 2}}
NAMES = [variant.name for variant in VARIANTS]


def small(name):
    family = next(variant.family for variant in VARIANTS if variant.name == name)
    return SMALL.get(family, {})


@pytest.mark.parametrize("name", NAMES)
def test_a_subject_runs_and_every_parameter_takes_part(name):
    built = subject(name, small(name), seed=0)
    batch = next(iter(built.batches))
    loss = built.loss(built.call(batch), batch)
    assert loss.ndim == 0
    assert torch.isfinite(loss)
    loss.backward()
    missing = [path for path, parameter in built.model.named_parameters() if parameter.grad is None]
    assert missing == []
    assert built.model.training


@pytest.mark.parametrize("name", NAMES)
def test_the_task_does_not_touch_the_global_random_state(name):
    torch.manual_seed(5)
    model = build(name, **small(name))
    after_build = torch.get_rng_state()
    built = subject(name, small(name), seed=5)
    assert torch.equal(torch.get_rng_state(), after_build)
    for (path, expected), (_, got) in zip(model.state_dict().items(), built.model.state_dict().items(), strict=True):
        assert torch.equal(expected, got), path


def test_without_a_seed_the_random_state_goes_on():
    torch.manual_seed(1)
    first = subject("pre-ln", {"layers": 1}, seed=None)
    second = subject("pre-ln", {"layers": 1}, seed=None)
    assert not torch.equal(first.model.head.weight, second.model.head.weight)


def test_rebuilding_draws_new_weights_for_the_same_data():
    first = subject("pre-ln", {"layers": 1}, seed=0)
    again, other = first.rebuild(0), first.rebuild(1)
    assert torch.equal(first.model.head.weight, again.model.head.weight)
    assert not torch.equal(first.model.head.weight, other.model.head.weight)
    for mine, its in zip(first.batches, other.batches, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, its, strict=True))
    assert other.arguments == {"layers": 1}


@pytest.mark.parametrize("name", ["pre-ln", "resnet18"])
def test_the_task_can_be_learnt(name):
    built = subject(name, {"layers": 2, "position_std": 1.0} if name == "pre-ln" else {"width": 8}, seed=0)
    optimizer = torch.optim.Adam(built.model.parameters(), lr=3e-3)
    losses = []
    for step in range(160 if name == "pre-ln" else 20):
        batch = built.batches[step % len(built.batches)]
        optimizer.zero_grad()
        loss = built.loss(built.call(batch), batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-5:]) / 5 < 0.5 * losses[0]
