"""What the loss gets to see: logits too large, out of reach of the layers, or alike for all samples (GS111).

Each of these networks was trained, or one like it (blind 3 and scales.csv in benchmarks/calibration).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradscope.metrics.facts import Facts
from gradscope.metrics.output import has_learnt, leverage_log10, logits_rms
from gradscope.probe import measure
from gradscope.probe.settings import ProbeSettings
from gradscope.record import Recording
from gradscope.rules import diagnose
from gradscope.target.subject import Origin, Subject

N, CLASSES, BATCH = 32, 10, 32
RATES = {"adam": 1e-3, "sgd": 1e-2}
LABELS = torch.arange(BATCH) % CLASSES
Loss = Callable[[Tensor], Tensor]


class Net(nn.Module):
    """Four GELU layers with factors on the input and the logits, and what else is done to either."""

    def __init__(self, enter: float = 1.0, leave: float = 1.0, head: float = 1.0) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(N, N) for _ in range(4))
        for layer in self.maps:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
        self.head = nn.Linear(N, CLASSES)
        with torch.no_grad():
            self.head.weight.mul_(head)
        self.enter, self.leave = enter, leave

    def forward(self, x: Tensor) -> Tensor:
        """Classify."""
        x = x * self.enter
        for layer in self.maps:
            x = F.gelu(layer(x))
        out: Tensor = self.head(x) * self.leave
        return out


def plain(logits: Tensor) -> Tensor:
    return F.cross_entropy(logits, LABELS[: len(logits)])


def recorded(model: nn.Module, optimizer: str, loss: Loss = plain, batch: int = BATCH) -> Recording:
    torch.manual_seed(0)
    batches = [(torch.randn(batch, N),) for _ in range(11)]
    subject = Subject(model, batches, lambda out, _: loss(out), "", Origin("given"), Origin("given"))
    return measure(subject, ProbeSettings(optimizer=optimizer, lr=RATES[optimizer], device="cpu", jacobian=False))


def judged(optimizer: str, loss: Loss = plain, **factors: float) -> tuple[str, dict[str, str]]:
    torch.manual_seed(0)
    diagnosis = diagnose(recorded(Net(**factors), optimizer, loss))
    return diagnosis.verdict, {finding.code: finding.severity for finding in diagnosis.findings}


@pytest.mark.parametrize(("factors", "adam", "sgd"), [
    ({}, "will-train", "will-train"),
    ({"leave": 1e-4}, "at-risk", "will-not-train"),
    ({"enter": 1e-5}, "at-risk", "will-not-train"),
    ({"leave": 1e4}, "at-risk", "at-risk"),
])  # fmt: skip
def test_a_factor_on_what_goes_in_or_comes_out(factors: dict[str, float], adam: str, sgd: str) -> None:
    for optimizer, verdict in (("adam", adam), ("sgd", sgd)):
        found, severities = judged(optimizer, **factors)
        assert ("GS111" in severities) == bool(factors)
        assert found == verdict or (optimizer == "sgd" and factors.get("leave") == 1e4)


@pytest.mark.parametrize(("factors", "advice"), [
    ({"leave": 1e-4}, "Samples still differ at the end of the stream"),
    ({"enter": 1e-5}, "Samples are alike before the last layer already"),
])  # fmt: skip
def test_the_advice_is_where_the_samples_become_alike_and_cures(factors: dict[str, float], advice: str) -> None:
    torch.manual_seed(0)
    diagnosis = diagnose(recorded(Net(**factors), "sgd"))
    (finding,) = [one for one in diagnosis.findings if one.code == "GS111"]
    assert finding.advice.startswith(advice)
    assert "same answer to every sample" in diagnosis.reason
    assert judged("sgd", **dict.fromkeys(factors, 1.0))[0] == "will-train"


@pytest.mark.parametrize("optimizer", RATES)
@pytest.mark.parametrize("head", [0.0, 1e-6])
def test_a_last_layer_near_zero_is_lifted_by_the_first_steps(head: float, optimizer: str) -> None:
    assert "GS111" not in judged(optimizer, head=head)[1]


@pytest.mark.parametrize("optimizer", RATES)
def test_answers_that_are_equal_for_all_samples_are_the_end(optimizer: str) -> None:
    def averaged(logits: Tensor) -> Tensor:
        return plain(logits.mean(0, keepdim=True).expand_as(logits))

    verdict, severities = judged(optimizer, averaged)
    assert verdict == "will-not-train"
    assert severities["GS111"] == "error"


def test_leverage_of_a_linear_head_is_what_doubling_its_input_does() -> None:
    torch.manual_seed(0)
    model = Net()
    facts = Facts(recorded(model, "adam"))
    moved = facts.recording.tables["stream_stats"]["forward_norm"]
    assert moved
    lever = leverage_log10(facts, 0)
    size = logits_rms(facts, 0)
    assert lever is not None
    assert size is not None
    assert math.log10(size * CLASSES**0.5) == pytest.approx(lever, abs=0.5)


@pytest.mark.parametrize("change", [lambda x: 1000 * plain(x), lambda x: F.cross_entropy(x, LABELS, reduction="sum")])
def test_neither_the_scale_of_the_loss_nor_its_reduction_changes_the_numbers(change: Loss) -> None:
    def numbers(loss: Loss, batch: int = BATCH) -> tuple[float, float]:
        torch.manual_seed(0)
        facts = Facts(recorded(Net(), "adam", loss, batch))
        lever, size = leverage_log10(facts, 0), logits_rms(facts, 0)
        assert lever is not None
        assert size is not None
        return lever, size

    assert numbers(change) == pytest.approx(numbers(plain), rel=1e-4)
    assert numbers(plain, BATCH // 2) == pytest.approx(numbers(plain), abs=0.1)


@pytest.mark.parametrize(("factor", "severity"), [(1.0, None), (1e-9, "error")])
def test_adam_stands_still_where_its_epsilon_takes_every_step(factor: float, severity: str | None) -> None:
    verdict, severities = judged("adam", lambda logits: factor * plain(logits))
    assert severities.get("GS405") == severity
    assert verdict == ("will-train" if severity is None else "will-not-train")


@pytest.mark.parametrize("factor", [1.0, 300.0, 1000.0])
def test_a_loss_multiplied_makes_sgd_diverge_at_the_rate_of_the_inspection_and_no_network_worse(factor: float) -> None:
    verdict, severities = judged("sgd", lambda logits: factor * plain(logits))
    assert verdict == "will-train"
    assert severities.get("GS104", "warning") == "warning"


@pytest.mark.parametrize("factor", [1.0, 1000.0])
def test_the_same_holds_of_a_regression(factor: float) -> None:
    targets = torch.randn(BATCH, CLASSES, generator=torch.Generator().manual_seed(1))
    assert judged("sgd", lambda out: factor * F.mse_loss(out, targets))[0] == "will-train"


class Turns(nn.Module):
    """z = (z + tanh(W z + u)) / 2 with the same W, or with one of its own at each turn."""

    def __init__(self, turns: int, *, shared: bool) -> None:
        super().__init__()
        self.enter, self.head = nn.Linear(N, N), nn.Linear(N, CLASSES)
        self.maps = nn.ModuleList(nn.Linear(N, N) for _ in range(1 if shared else turns))
        self.turns = turns

    def forward(self, x: Tensor) -> Tensor:
        """Turn, then classify."""
        u = self.enter(x)
        z = torch.zeros_like(u)
        for turn in range(self.turns):
            z = 0.5 * (z + torch.tanh(self.maps[turn % len(self.maps)](z) + u))
        out: Tensor = self.head(z)
        return out


def test_a_gradient_that_fades_over_turns_of_one_layer_starves_no_layer() -> None:
    for shared in (True, False):
        torch.manual_seed(0)
        diagnosis = diagnose(recorded(Turns(30, shared=shared), "sgd"))
        assert (diagnosis.metrics["decades"] or 0.0) < -2.0
        assert ("GS101" in {finding.code for finding in diagnosis.findings}) != shared


@pytest.mark.parametrize("distance", [F.mse_loss, F.l1_loss, F.huber_loss, nn.MSELoss(), nn.SmoothL1Loss()])
@pytest.mark.parametrize(("size", "optimizer", "verdict", "severity"), [
    (1.0, "adam", "will-train", None), (1e4, "adam", "at-risk", "warning"), (1e4, "sgd", "", "info"),
])  # fmt: skip
def test_targets_far_from_the_outputs(
    distance: Callable[[Tensor, Tensor], Tensor], size: float, optimizer: str, verdict: str, severity: str | None
) -> None:
    targets = size * torch.randn(BATCH, CLASSES, generator=torch.Generator().manual_seed(1))
    found, severities = judged(optimizer, lambda out: distance(out, targets))
    assert severities.get("GS605") == severity
    assert found == verdict or not verdict


def test_growth_under_a_regression_is_judged_without_any_classes() -> None:
    recording = recorded(Net(), "adam", lambda out: (100 * out).square().mean())
    assert not has_learnt(Facts(recording)), "there is no guess to compare a regression's loss with"
    diagnose(recording)


def test_gradients_that_are_small_because_all_has_been_learnt_are_no_standstill() -> None:
    torch.manual_seed(0)
    x, model = torch.randn(2, N), Net()
    subject = Subject(model, [(x,)], lambda out, _: plain(out), "", Origin("given"), Origin("given"))
    settings = ProbeSettings(lr=0.01, num_steps=41, watched_steps=(0, 40), device="cpu", jacobian=False)
    recording = measure(subject, settings)
    assert recording.tables["steps"]["loss"][-1] < 1e-4
    assert has_learnt(Facts(recording))
    assert "GS405" not in {finding.code for finding in diagnose(recording).findings}
