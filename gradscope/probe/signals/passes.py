"""The measurements that take passes of their own, after a watched step, on a part of its batch.

They leave no trace: buffers and random state are put back, ``.grad`` is never written, noise comes from a generator of
their own. Checkpointed segments run plainly in them. What fails on a part of the batch is measured on the whole of it
(a part of a graph is none), or confessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from gradscope.probe.restore import untouched
from gradscope.probe.signals.amplification import amplification
from gradscope.probe.signals.halves import gradient_cosine
from gradscope.probe.signals.jacobian import StreamEnd, anisotropy, num_cotangents, sub_batch_size
from gradscope.probe.signals.observer import Observation
from gradscope.probe.signals.shattering import shattering_cosine
from gradscope.probe.signals.subbatch import batch_size, fresh, part
from gradscope.probe.watching.eager import without_reentry

Found = TypeVar("Found")
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
    batches = (few, batch) if few is not batch else (batch,)
    generator = torch.Generator().manual_seed(_SEED)
    with untouched(model), without_reentry(), torch.enable_grad():
        if find_ends is not None:
            found.attempt("jacobian_anisotropy", lambda: _jacobian(found, forward, batches, size, find_ends, generator))
        if deep:
            _deep(found, model, forward, loss, batches, generator)
    return found


def _deep(
    found: Passes,
    model: nn.Module,
    forward: Callable[[Any], Any],
    loss: Callable[[Any], Tensor],
    batches: tuple[Any, ...],
    generator: torch.Generator,
) -> None:
    dear: tuple[tuple[str, Callable[[], float | None], str], ...] = (
        (
            "amplification",
            lambda: _on_first(batches, lambda some: amplification(model, lambda: forward(fresh(some)), generator)),
            "the output has no tensor or is zero",
        ),
        (
            "shattering_cosine",
            lambda: _on_first(batches, lambda some: shattering_cosine(forward, some, generator)),
            "the input has no floating tensor",
        ),
        (
            "gradient_cosine",
            lambda: gradient_cosine(model, lambda half: loss(fresh(half)), batches[-1]),
            "the batch has one sample, or no gradient",
        ),
    )
    for metric, measure, why_not in dear:
        found.attempt(metric, partial(_keep, found, metric, measure, why_not))


def _on_first(batches: tuple[Any, ...], measure: Callable[[Any], Found]) -> Found:
    """Measure on the first batch that the model takes."""
    for batch in batches[:-1]:
        try:
            return measure(batch)
        except Exception:  # whatever it is, the last batch, the whole one, decides
            continue
    return measure(batches[-1])


def _keep(found: Passes, metric: str, measure: Callable[[], float | None], why_not: str) -> None:
    found.add(metric, measure(), why_not)


def _jacobian(
    found: Passes,
    forward: Callable[[Any], Any],
    batches: tuple[Any, ...],
    size: int | None,
    find_ends: FindEnds,
    generator: torch.Generator,
) -> None:
    ends = _on_first(batches, lambda some: find_ends(lambda: forward(fresh(some))))
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
