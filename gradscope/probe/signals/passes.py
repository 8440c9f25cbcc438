"""The measurements that take passes of their own, after a watched step, on a part of its batch.

They leave no trace: buffers and random state are put back, ``.grad`` is never written, noise comes from a generator of
their own. What fails on a part of the batch (models that want their full batch) is confessed, not raised.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gradscope.probe.restore import untouched
from gradscope.probe.signals.amplification import amplification
from gradscope.probe.signals.halves import gradient_cosine
from gradscope.probe.signals.jacobian import StreamEnd, anisotropy, num_cotangents, sub_batch_size
from gradscope.probe.signals.observer import Observation
from gradscope.probe.signals.shattering import shattering_cosine
from gradscope.probe.signals.subbatch import batch_size, fresh, part

FindEnds = Callable[[Callable[[], Any]], "tuple[StreamEnd, StreamEnd] | None"]
"""Runs a forward and returns the two ends of its stream, None where it has no stream."""

_SEED = 20131
"""Of the generator that draws cotangents and noise: the same recording from the same run."""


@dataclass
class Passes:
    """What the extra passes found, and what they could not: (what, why)."""

    observations: list[Observation] = field(default_factory=list)
    confessions: list[tuple[str, str]] = field(default_factory=list)

    def add(self, metric: str, value: float | None, why_not: str) -> None:
        """Keep a number of the whole model, or why there is none."""
        if value is None:
            self.confessions.append((metric, why_not))
        else:
            self.observations.append(Observation(metric, "", 0, value))

    def attempt(self, metric: str, measure: Callable[[], None]) -> None:
        """Run one measurement; whatever the user's model raises on a part of its batch becomes a confession."""
        try:
            measure()
        except Exception as error:  # user code on an input it may not be made for can raise anything
            self.confessions.append((metric, f"{type(error).__name__}: {error}".splitlines()[0][:200]))


def measure_passes(
    model: nn.Module,
    forward: Callable[[Any], Any],
    loss: Callable[[Any], Tensor],
    batch: Any,
    *,
    find_ends: FindEnds | None,
    deep: bool,
) -> Passes:
    """Measure kappa_J (where ``find_ends`` is given) and, at the deep level, what else needs passes of its own.

    Args:
        model: The model, for its buffers and parameters.
        forward: Runs it on a batch.
        loss: Runs it on a batch, to the loss.
        batch: The step's batch.
        find_ends: See ``FindEnds``.
        deep: Whether to take the dear ones: amplification, shattering_cosine, gradient_cosine.

    Returns:
        Observations of the whole model, and confessions.
    """
    found = Passes()
    size = batch_size(batch)
    few = batch if size is None else part(batch, 0, sub_batch_size(size))
    generator = torch.Generator().manual_seed(_SEED)
    with untouched(model), torch.enable_grad():
        if find_ends is not None:
            found.attempt("jacobian_anisotropy", lambda: _jacobian(found, forward, few, size, find_ends, generator))
        if deep:
            _deep(found, model, forward, loss, batch, few, generator)
    return found


def _deep(
    found: Passes,
    model: nn.Module,
    forward: Callable[[Any], Any],
    loss: Callable[[Any], Tensor],
    batch: Any,
    few: Any,
    generator: torch.Generator,
) -> None:
    dear: tuple[tuple[str, Callable[[], float | None], str], ...] = (
        (
            "amplification",
            lambda: amplification(model, lambda: forward(fresh(few)), generator),
            "the output has no tensor or is zero",
        ),
        (
            "shattering_cosine",
            lambda: shattering_cosine(forward, few, generator),
            "the input has no floating tensor",
        ),
        (
            "gradient_cosine",
            lambda: gradient_cosine(model, lambda half: loss(fresh(half)), batch),
            "the batch has one sample, or no gradient",
        ),
    )
    for metric, measure, why_not in dear:
        found.attempt(metric, partial(_keep, found, metric, measure, why_not))


def _keep(found: Passes, metric: str, measure: Callable[[], float | None], why_not: str) -> None:
    found.add(metric, measure(), why_not)


def _jacobian(
    found: Passes,
    forward: Callable[[Any], Any],
    batch: Any,
    size: int | None,
    find_ends: FindEnds,
    generator: torch.Generator,
) -> None:
    ends = find_ends(lambda: forward(fresh(batch)))
    if ends is None:
        found.confessions.append(("jacobian_anisotropy", "the two ends of a stream from input to loss were not found"))
        return
    result = anisotropy(*ends, generator, num_cotangents(size or 1))
    found.add("jacobian_passes", float(result.num_cotangents), "")
    found.add("jacobian_anisotropy", result.kappa, result.reason)
    if result.kappa is not None and result.gain is not None:
        found.add("jacobian_gain_log10", math.log10(result.gain), "")
        found.add("jacobian_error", result.relative_error, "")
    if result.coupling is not None:
        found.add("couples_samples", result.coupling, "")
