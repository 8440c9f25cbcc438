"""Inputs and losses inferred from the model alone."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from torch import nn

from gradscope.errors import InputsError
from gradscope.target import load
from tests.target import architectures

FILE = Path(architectures.__file__)
NAMES = [name for name, value in vars(architectures).items() if inspect.isclass(value) and issubclass(value, nn.Module)]


@pytest.mark.parametrize("name", NAMES)
def test_every_architecture_takes_a_step(name):
    subject = load(f"{FILE}:{name}")
    batch = next(iter(subject.batches))
    loss = subject.loss(subject.call(batch), batch)
    loss.backward()
    assert bool(torch.isfinite(loss))
    missing = [n for n, p in subject.model.named_parameters() if p.grad is None]
    assert not missing
    assert subject.inputs_origin.synthetic
    assert "--input" in subject.inputs_origin.text


def shapes(target: str, **options) -> list[tuple[int, ...]]:
    batch = next(iter(load(target, **options).batches))
    return [tuple(t.shape) for t in (batch.values() if isinstance(batch, dict) else batch)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Mnist", [(8, 784)]),
        ("LeNet", [(8, 1, 28, 28)]),
        ("LeNet32", [(8, 1, 32, 32)]),
        ("ViT", [(8, 3, 224, 224)]),
        ("NanoGPT", [(8, 12)]),
        ("Seq2Seq", [(8, 16), (8, 16)]),
        ("DDPM", [(8, 3, 32, 32), (8,)]),
        ("Tab", [(8, 13)]),
        ("Cell", [(8, 5), (8, 12)]),
        ("Nerf", [(8, 90)]),
        ("Informerish", [(8, 96, 7), (8, 96, 4)]),
    ],
)
def test_the_shapes_a_person_would_choose(name, expected):
    assert shapes(f"{FILE}:{name}") == expected


def test_ids_stay_inside_the_embedding():
    subject = load(f"{FILE}:DeepFM")
    batch = next(iter(subject.batches))
    assert int(batch[1].max()) < 5


def test_the_search_leaves_the_model_and_the_generators_as_they_were(write):
    file = write("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.c, self.n, self.lazy = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.LazyLinear(2)
                self.register_buffer("seen", torch.zeros(1))
            def forward(self, x):
                self.seen += 1
                return self.lazy(self.n(self.c(x)).flatten(1))
        def model():
            return Net()
    """)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    model = load(file, seed=None).model
    fresh_state = torch.get_rng_state()
    torch.set_rng_state(state)
    nn.Conv2d(3, 4, 3)
    assert torch.equal(torch.get_rng_state(), fresh_state)
    assert float(model.n.num_batches_tracked) == 0
    assert float(model.seen) == 0
    assert isinstance(model.lazy.weight, nn.UninitializedParameter)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in (model, model.c, model.n))
    assert model.training


def test_the_same_search_gives_the_same_inputs(write):
    first, second = (next(iter(load(f"{FILE}:UNet").batches))[0] for _ in range(2))
    assert torch.equal(first, second)


def test_failure_shows_what_was_tried(write):
    file = write("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(3, 2)
            def forward(self, x):
                raise ValueError("only the moon knows")
    """)
    with pytest.raises(InputsError) as caught:
        load(file)
    assert "No inputs were found that Net in user_model.py takes (x)" in caught.value.what
    assert "only the moon knows" in caught.value.rule
    assert "--input" in caught.value.hint


def test_a_model_that_cannot_be_copied_is_built_again(write):
    file = write("""
        import threading
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.lock = nn.Linear(3, 2), threading.Lock()
            def forward(self, x):
                with self.lock:
                    return self.a(x)
        def model():
            return Net()
    """)
    assert shapes(file) == [(8, 3)]


def test_huge_shapes_are_not_tried(write):
    file = write("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(3, 2)
            def forward(self, x):
                raise ValueError(f"expected 99999999, got {x.shape[-1]}")
    """)
    with pytest.raises(InputsError):
        load(file)


def test_gradient_penalties_inside_forward():
    assert shapes(f"{FILE}:PINN")


def test_weight_norm_with_its_computed_weight(write):
    file = write("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
            def forward(self, x):
                return self.a(x)
    """)
    assert shapes(file) == [(8, 3)]
