"""A norm at the end forgets the size of the stream: a factor in front of it scales gradients and harms nothing.

The outcomes of training these networks are in benchmarks/calibration/scales.csv.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from gradscope.probe import measure
from gradscope.probe.settings import ProbeSettings
from gradscope.rules import diagnose
from gradscope.rules.finding import Diagnosis
from gradscope.target.subject import Origin, Subject

N, DEPTH, CLASSES = 32, 8, 10
RATES = {"adam": 1e-3, "sgd": 1e-2}


class Factor(nn.Module):
    """A plain stack of He's weights with a factor behind the first half, and a norm at the end or none."""

    def __init__(self, factor: float, last: nn.Module, *, pick: bool = False) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(N, N) for _ in range(DEPTH))
        for layer in self.maps:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        self.factor, self.last, self.pick = factor, last, pick
        self.head = nn.Linear(N, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Classify."""
        for number, layer in enumerate(self.maps):
            x = layer(x).relu() * (self.factor if number == DEPTH // 2 else 1.0)
        out: Tensor = self.head(self.last(x.mean(1) if self.pick else x))
        return out


class Sized(nn.Module):
    """x / ||x||, written out."""

    def forward(self, x: Tensor) -> Tensor:
        """Divide by the size."""
        return x * x.pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt()


class Squashed(nn.Module):
    """tanh of a learnt multiple (DyT): bounded, but no size is forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(N))

    def forward(self, x: Tensor) -> Tensor:
        """Squash."""
        return torch.tanh(self.inner * x) * self.outer


def judged(build: Callable[[], nn.Module], optimizer: str, *shape: int) -> Diagnosis:
    torch.manual_seed(0)
    model = build()
    batches = [(torch.randn(32, *shape, N),) for _ in range(11)]
    labels = torch.arange(32) % CLASSES
    subject = Subject(
        model, batches, lambda out, _: nn.functional.cross_entropy(out, labels), "", Origin("given"), Origin("given")
    )
    return diagnose(measure(subject, ProbeSettings(optimizer=optimizer, lr=RATES[optimizer], device="cpu")))


@pytest.mark.parametrize("optimizer", RATES)
@pytest.mark.parametrize("last", [
    lambda: nn.LayerNorm(N), lambda: nn.RMSNorm(N), lambda: nn.BatchNorm1d(N), Sized,
    lambda: nn.Sequential(nn.Dropout(0.1), nn.LayerNorm(N)),
])  # fmt: skip
def test_growth_in_front_of_a_last_norm_is_explained(last: Callable[[], nn.Module], optimizer: str) -> None:
    diagnosis = judged(lambda: Factor(1e4, last()), optimizer)
    assert diagnosis.metrics["decades"] == pytest.approx(4.0, abs=0.6)
    assert abs(diagnosis.metrics["excess_decades"] or 0.0) < 0.5
    assert not {"GS101", "GS102", "GS103"} & {finding.code for finding in diagnosis.findings}
    assert diagnosis.verdict == "will-train"


@pytest.mark.parametrize("optimizer", RATES)
@pytest.mark.parametrize("last", [nn.Identity, Squashed, lambda: nn.BatchNorm1d(N).eval()])
def test_growth_in_front_of_anything_else_is_not(last: Callable[[], nn.Module], optimizer: str) -> None:
    diagnosis = judged(lambda: Factor(1e4, last()), optimizer)
    assert diagnosis.metrics["excess_decades"] == diagnosis.metrics["decades"] > 2.5
    assert diagnosis.verdict in ("will-not-train", "at-risk")


def test_tokens_may_be_averaged_before_the_norm() -> None:
    assert judged(lambda: Factor(1e4, nn.LayerNorm(N), pick=True), "adam", 6).verdict == "will-train"


@pytest.mark.parametrize(("factor", "optimizer", "verdict"), [
    (1e-4, "adam", "at-risk"),  # trains late: after 126 steps where 40 are usual
    (1e-4, "sgd", "will-not-train"),
    (1e-2, "adam", "will-train"),
])  # fmt: skip
def test_a_signal_that_drowns_in_the_biases_behind_a_small_factor_is_no_matter_of_size(
    factor: float, optimizer: str, verdict: str
) -> None:
    diagnosis = judged(lambda: Factor(factor, nn.LayerNorm(N)), optimizer)
    assert diagnosis.verdict == verdict
    assert diagnosis.metrics["scale_free_decades"] == pytest.approx(math.log10(factor), abs=1.3)
