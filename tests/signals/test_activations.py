from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gradscope.probe.signals.activations import SATURATED_SHARE
from tests.signals.watching import watch


class Through(nn.Module):
    """One activation function, called as a function inside a module named `act`."""

    def __init__(self, function) -> None:
        super().__init__()
        self.act = nn.Module()
        self.act.forward = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(x).sum()


@pytest.mark.parametrize(
    "function",
    [F.relu, torch.relu, lambda x: x.relu(), lambda x: F.relu(x, inplace=True), lambda x: x.clamp(min=0),
     lambda x: torch.clamp_min(x, 0), nn.ReLU().forward, nn.ReLU(inplace=True).forward, F.relu6,
     nn.Threshold(0, 0).forward],
)
def test_dead_units_of_the_relu_family(function) -> None:
    x = torch.randn(16, 5, 10).abs()
    x[..., :3] *= -1
    x.requires_grad_()
    model = Through(function)
    assert watch(model, lambda: model(x * 1.0))("dead_fraction", "act") == pytest.approx(0.3)


def test_a_unit_that_is_on_for_one_sample_is_alive_and_channels_are_units() -> None:
    x = -torch.rand(8, 4, 6, 6)
    x[3, 1, 2, 2] = 1.0
    model = nn.Sequential(nn.Conv2d(4, 4, 1, bias=False), nn.ReLU())
    nn.init.dirac_(model[0].weight)
    assert watch(model, lambda: model(x).sum())("dead_fraction", "1") == pytest.approx(0.75)


def test_too_few_values_say_nothing() -> None:
    model = Through(F.relu)
    x = torch.randn(4, 10, requires_grad=True)
    assert not watch(model, lambda: model(x)).has("dead_fraction", "act")


@pytest.mark.parametrize("function", [F.gelu, F.silu, F.leaky_relu, F.elu, lambda x: x.clamp(-1, 1)])
def test_other_functions_have_no_dead_units(function) -> None:
    model = Through(function)
    x = -torch.rand(16, 10, requires_grad=True) - 5
    assert not watch(model, lambda: model(x)).has("dead_fraction", "act")


@pytest.mark.parametrize(
    ("function", "top"),
    [(torch.tanh, 1.0), (torch.sigmoid, 0.25), (F.softsign, 1.0), (F.hardtanh, 1.0), (F.hardsigmoid, 1 / 6),
     (nn.Tanh().forward, 1.0), (nn.Sigmoid().forward, 0.25)],
)
def test_saturation_is_a_derivative_below_two_percent_of_its_maximum(function, top: float) -> None:
    x = torch.linspace(-9, 9, 999, dtype=torch.float64).reshape(27, 37).requires_grad_()
    (slope,) = torch.autograd.grad(function(x).sum(), x)
    expected = float((slope < SATURATED_SHARE * top).double().mean())
    model = Through(function)
    assert watch(model, lambda: model(x))("saturated_fraction", "act") == pytest.approx(expected, abs=2e-3)
    assert 0 < expected < 1


def test_the_worst_of_several_activations_in_one_call_stands_for_it() -> None:
    model = Through(lambda x: torch.tanh(x) + torch.tanh(100 * x))
    x = torch.randn(64, 64, requires_grad=True)
    assert watch(model, lambda: model(x))("saturated_fraction", "act") > 1 - math.exp(-3)
