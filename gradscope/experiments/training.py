"""Train a subject for a few steps and write down how it went."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from gradscope.target.subject import Subject
from gradscope.variants import subject as make_subject

SOLVED_SHARE = 0.5
"""A run counts as trained when its loss falls below this share of the chance loss (half of ln V)."""


CERTAIN = 1e4
"""Logit of a class one is sure of: large enough that softmax gives the others nothing."""


@dataclass
class History:
    """One training run.

    Attributes:
        losses: Loss before each step, in nats.
        accuracy: Share of right answers on the last batches.
    """

    losses: list[float] = field(default_factory=list)
    accuracy: float = math.nan

    @property
    def final_loss(self) -> float:
        """Mean of the last tenth of the losses; inf when they are not finite."""
        tail = self.losses[-max(len(self.losses) // 10, 1) :]
        mean = sum(tail) / len(tail)
        return mean if math.isfinite(mean) else math.inf

    @property
    def swing(self) -> float:
        """Largest rise of the loss above its running minimum, in nats: what an oscillation or divergence would show."""
        lowest, largest = math.inf, 0.0
        for loss in self.losses:
            lowest = min(lowest, loss)
            largest = max(largest, loss - lowest) if math.isfinite(loss) else math.inf
        return largest


def train(
    subject: Subject,
    num_steps: int,
    lr: float,
    *,
    warmup: int = 0,
    before_step: Callable[[int], None] | None = None,
) -> History:
    """Train with Adam, going round the subject's batches.

    Args:
        subject: What to train.
        num_steps: Optimizer steps.
        lr: Learning rate after warmup.
        warmup: Steps of linear warmup.
        before_step: Called with the step number before each step.

    Returns:
        The run. It ends early when the loss is no longer finite.
    """
    optimizer = torch.optim.Adam(subject.model.parameters(), lr=lr)
    history = History()
    batches = itertools.cycle(subject.batches)
    for step in range(num_steps):
        if before_step is not None:
            before_step(step)
        if warmup:
            optimizer.param_groups[0]["lr"] = lr * min(1.0, (step + 1) / warmup)
        batch = next(batches)
        optimizer.zero_grad()
        loss = subject.loss(subject.call(batch), batch)
        history.losses.append(float(loss.detach()))
        if not math.isfinite(history.losses[-1]):
            break
        loss.backward()
        optimizer.step()
    return history


def chance_loss(num_classes: int) -> float:
    """Return the loss of a uniform guess, ln(classes)."""
    return math.log(num_classes)


def token_subject(name: str, seed: int, **arguments: object) -> Subject:
    """Make a token model for training: positions as strong as tokens, so that the task is learnt in few steps."""
    return make_subject(name, {"position_std": 1.0, "tokens": 16, "batch": 32, **arguments}, seed)


@torch.no_grad()
def token_accuracy(subject: Subject, num_batches: int = 4) -> float:
    """Share of right answers on the first batches.

    The subject's loss knows the targets: given logits that are certain of the predicted class, it charges the wrong
    answers `CERTAIN` nats each and the right ones nothing, so its mean counts the wrong ones.
    """
    right = total = 0.0
    for batch in itertools.islice(iter(subject.batches), num_batches):
        logits = subject.call(batch)
        certain = torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).float() * CERTAIN
        right += 1.0 - float(subject.loss(certain, batch)) / CERTAIN
        total += 1
    return right / total
