"""Whether a network trains: each under Adam and SGD, the better of two learning rates, on a task that can be solved."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.calibration.networks import Network
from benchmarks.calibration.strangers import Stranger

AnyNetwork = Network | Stranger

NUM_STEPS = 150
MORE_STEPS = 300
"""A network that has begun to learn at step 150 gets as many steps again: slow is not dead."""
BEGUN_SHARE = 0.93
"""Loss, as a share of that of a guess, below which a network has begun to learn."""
PASS_SHARE = 0.5
"""Loss, as a share of that of a guess, below which a network has trained."""
WINDOW = 8

RATES: dict[str, dict[str, tuple[float, float]]] = {
    "adam": {"mlp": (1e-3, 3e-3), "transformer": (3e-3, 1e-3), "convolutional": (3e-3, 1e-3),
             "recurrent": (1e-2, 3e-3)},
    "sgd": {"mlp": (0.05, 0.005), "transformer": (0.1, 0.03), "convolutional": (0.03, 0.005), "recurrent": (0.5, 0.1)},
}  # fmt: skip
"""The two learning rates of each optimizer and family, the likelier one first; SGD has momentum 0.9."""


CHANCES: tuple[tuple[int, dict[str, tuple[float, ...]]], ...] = (
    (300, {"mlp": (0.5, 0.15), "transformer": (0.5, 0.2), "convolutional": (0.1, 0.01), "recurrent": (2.0, 1.0)}),
    (600, {"mlp": (1.5, 0.015), "transformer": (1.0, 0.05), "convolutional": (0.3, 0.002), "recurrent": (4.0, 0.25)}),
    (600, {"mlp": (1.5e-3, 1.5e-4), "transformer": (0.01, 0.003), "convolutional": (7e-4, 2e-4),
           "recurrent": (0.03, 0.01)}),
)
"""More steps and two more rates, three times, for SGD where only Adam trains: small branches are no fault, but learn
slowly and need a rate of their own, and where the gradient grows the curvature asks for a small one."""


@dataclass(frozen=True)
class Outcome:
    """How the better of two trainings ended: trained, or how far it came."""

    trained: bool
    share: float
    """Final loss (mean of the last 8 steps) over that of a guess; inf where it became non-finite."""
    steps: int
    lr: float


def outcome(network: AnyNetwork, optimizer: str) -> Outcome:
    """Train a network with one optimizer; the second learning rate is tried where the first does not pass."""
    best: Outcome | None = None
    for lr in RATES[optimizer][network.family]:
        found = train_once(network, optimizer, lr)
        if best is None or found.share < best.share:
            best = found
        if best.trained:
            break
    assert best is not None
    return best


def another_chance(network: AnyNetwork, number: int) -> Outcome:
    """Train once more with SGD, at two more rates and with more patience."""
    steps, rates = CHANCES[number]
    found = (train_once(network, "sgd", lr, patience=steps, most=steps) for lr in rates[network.family])
    return min(found, key=lambda one: one.share)


def train_once(
    network: AnyNetwork, optimizer: str, lr: float, patience: int = NUM_STEPS, most: int = MORE_STEPS
) -> Outcome:
    subject = network.subject()
    model = subject.model.to(getattr(torch, network.dtype))
    batches = _endless(list(subject.batches), network.dtype)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    step = torch.optim.Adam(parameters, lr) if optimizer == "adam" else torch.optim.SGD(parameters, lr, momentum=0.9)
    torch.manual_seed(0)
    guess, best = _span(network)
    losses: list[float] = []
    while len(losses) < most:
        batch = next(batches)
        step.zero_grad()
        loss = subject.loss(subject.call(batch), batch)
        loss.backward()
        step.step()
        losses.append(loss.item())
        share = (sum(losses[-WINDOW:]) / len(losses[-WINDOW:]) - best) / (guess - best)
        if not math.isfinite(share):
            return Outcome(False, math.inf, len(losses), lr)
        if len(losses) > WINDOW and share < PASS_SHARE:
            return Outcome(True, share, len(losses), lr)
        if len(losses) >= patience and share > BEGUN_SHARE:
            break
    return Outcome(False, share, len(losses), lr)


def _span(network: AnyNetwork) -> tuple[float, float]:
    """Return the loss of a guess and the lowest that can be reached."""
    if isinstance(network, Stranger) and not math.isnan(network.guess):
        return network.guess, network.best
    return math.log(16 if network.family in ("transformer", "recurrent") else 10), 0.0


def _endless(batches: list[Any], dtype: str) -> Iterator[Any]:
    wanted = getattr(torch, dtype)
    moved = [tuple(x.to(wanted) if x.is_floating_point() else x for x in batch) for batch in batches]
    while True:
        yield from moved
