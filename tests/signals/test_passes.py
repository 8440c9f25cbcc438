"""Measurements that take forward and backward passes of their own."""

from __future__ import annotations

import copy
from collections import namedtuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gradscope.probe.signals.amplification import amplification
from gradscope.probe.signals.halves import gradient_cosine
from gradscope.probe.signals.shattering import shattering_cosine
from gradscope.probe.signals.subbatch import batch_size, fresh, part


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def mlp(depth: int, width: int = 64, activation: type[nn.Module] = nn.Identity) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width, bias=False), activation())]
    for layer in layers[::2]:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu" if activation is nn.ReLU else "linear")
    return nn.Sequential(*layers)


@pytest.mark.parametrize("depth", [1, 4, 16])
def test_noise_on_a_linear_stack_adds_up_in_quadrature(depth: int) -> None:
    # Each layer's noise moves the output by 1 % of its norm, independently: sqrt(depth) per cent in all.
    model = mlp(depth, 256)
    x = torch.randn(32, 256)
    assert amplification(model, lambda: model(x), generator()) == pytest.approx(depth**0.5, rel=0.1)


def test_amplification_puts_the_weights_back_bitwise_and_knows_dropout() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8))
    before = copy.deepcopy(model.state_dict())
    value = amplification(model, lambda: model(torch.ones(4, 8)), generator())
    assert value is not None
    assert value < 10  # another mask would move the output by its own size: 100
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True))


def test_linear_maps_do_not_shatter_and_deep_relu_nets_do() -> None:
    x = (torch.randn(32, 64),)
    linear, shallow, deep = mlp(8), mlp(1, 64, nn.ReLU), mlp(40, 64, nn.ReLU)
    assert shattering_cosine(lambda b: linear(*b), x, generator()) == pytest.approx(1)
    close = shattering_cosine(lambda b: shallow(*b), x, generator())
    far = shattering_cosine(lambda b: deep(*b), x, generator())
    assert close is not None
    assert far is not None
    assert close > 0.95
    assert far < 0.7


def test_shattering_needs_a_floating_input() -> None:
    embedding = nn.Embedding(4, 4)
    assert shattering_cosine(embedding, torch.arange(4), generator()) is None


def test_gradient_cosine_equals_the_gradients_of_the_halves() -> None:
    model = mlp(2, 8, nn.ReLU)
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    grads = []
    for half in (slice(0, 3), slice(3, 6)):
        model.zero_grad()
        F.mse_loss(model(x[half]), y[half]).backward()
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    model.zero_grad()
    expected = float(F.cosine_similarity(grads[0], grads[1], dim=0))
    found = gradient_cosine(model, lambda b: F.mse_loss(model(b[0]), b[1]), (x, y))
    assert found == pytest.approx(expected, abs=1e-6)
    assert all(p.grad is None for p in model.parameters())
    assert gradient_cosine(model, lambda b: F.mse_loss(model(b[0]), b[1]), (x[:1], y[:1])) is None


def test_parts_of_nested_batches() -> None:
    pair = namedtuple("pair", "x y")(torch.arange(8), {"mask": torch.ones(3, 3), "ids": [torch.zeros(8, 2)], "n": 8})
    half = part(pair, 0, 4)
    assert type(half) is type(pair)
    assert half.x.tolist() == [0, 1, 2, 3]
    assert half.y["mask"].shape == (3, 3)
    assert half.y["ids"][0].shape == (4, 2)
    assert half.y["n"] == 8
    assert batch_size(["no tensor"]) is None


def test_a_fresh_batch_may_be_changed_in_place() -> None:
    batch = {"x": torch.ones(2, 3, requires_grad=True), "ids": torch.arange(2)}
    copy_ = fresh(part(batch, 0, 1))
    assert copy_["x"].requires_grad
    with torch.no_grad():
        copy_["x"].zero_()
        copy_["ids"] += 5
    assert float(batch["x"].detach().sum()) == 6
    assert batch["ids"].tolist() == [0, 1]
