from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.signals.watching import watch

LOGITS = torch.randn(16, 5, generator=torch.Generator().manual_seed(0))
TARGET = torch.arange(16) % 5


def run(loss) -> object:
    model = nn.Identity()
    x = LOGITS.clone().requires_grad_()
    return watch(model, lambda: loss(model(x)))


def test_softmax_before_cross_entropy_is_seen() -> None:
    assert run(lambda x: F.cross_entropy(x.softmax(-1), TARGET))("probabilities_as_logits", "") == 1
    assert run(lambda x: nn.CrossEntropyLoss()(x, TARGET))("probabilities_as_logits", "") == 0
    assert run(lambda x: F.nll_loss(F.log_softmax(x.softmax(-1), -1), TARGET))("probabilities_as_logits", "") == 1
    spatial = run(lambda x: F.cross_entropy(x.softmax(1).unsqueeze(-1).expand(16, 5, 3), TARGET[:, None].expand(16, 3)))
    assert spatial("probabilities_as_logits", "") == 1


def test_sigmoid_before_its_own_loss_is_seen() -> None:
    target = torch.rand(16, 5)
    assert run(lambda x: F.binary_cross_entropy_with_logits(x.sigmoid(), target))("probabilities_as_logits", "") == 1
    assert run(lambda x: F.binary_cross_entropy_with_logits(x, target))("probabilities_as_logits", "") == 0


@pytest.mark.parametrize(
    ("make", "expected"),
    [(lambda x: x, 0), (lambda x: 1 / (1 + (-x).exp()), 1), (lambda x: x.sigmoid().clamp(1e-6, 1).unsqueeze(0)[0], 1)],
)
def test_fresh_logits_between_zero_and_one_are_no_probabilities(make, expected: float) -> None:
    seen = run(lambda x: F.binary_cross_entropy_with_logits(make(0.3 + 0.01 * x), torch.ones(16, 5)))
    assert seen("probabilities_as_logits", "") == expected


def test_a_frozen_layer_ends_the_search_for_a_sigmoid() -> None:
    critic = nn.Linear(5, 5).requires_grad_(False)
    critic.weight.data.mul_(0.1)
    critic.bias.data.fill_(0.5)
    seen = run(lambda x: F.binary_cross_entropy_with_logits(critic(x.tanh()), torch.ones(16, 5)))
    assert seen("probabilities_as_logits", "") == 0


@pytest.mark.parametrize("hidden", [-1e9, -math.inf, torch.finfo(torch.float32).min])
def test_masked_logits_have_no_size(hidden: float) -> None:
    shown = torch.ones(16, 5, dtype=torch.bool).tril(1)
    seen = run(lambda x: F.cross_entropy(x.masked_fill(~shown, hidden), TARGET.clamp_max(1)))
    expected = LOGITS.masked_fill(~shown, 0.0)
    assert seen("logits_rms", "") == pytest.approx(float(expected.square().mean().sqrt()))


@pytest.mark.parametrize(
    ("make", "expected"), [(lambda x: x, 1), (lambda x: x.softmax(-1), 1), (lambda x: x.log_softmax(-1), 0)]
)
def test_nll_loss_wants_log_probabilities(make, expected: float) -> None:
    assert run(lambda x: F.nll_loss(make(x), TARGET))("unnormalised_log_probabilities", "") == expected


def test_one_class_is_counted() -> None:
    assert run(lambda x: F.cross_entropy(x[:, :1], TARGET * 0))("loss_classes", "") == 1
