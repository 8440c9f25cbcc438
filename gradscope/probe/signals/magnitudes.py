"""Histograms of log2|g| of gradients, and what a narrower number format would lose of them.

Each gradient is represented by at most 2048 of its elements, evenly spread. With n elements looked at, a share p is
known to about sqrt(p (1 - p) / n): 0.2 % at p = 1 %.

Formats (smallest subnormal; half of it rounds to zero): fp16 2^-24, E5M2 2^-16, E4M3 2^-9 (Micikevicius 2018, 2022).
Gradients are looked at as they flow, that is multiplied by the loss scale; histograms are divided by it again.

Cost: default level; one strided copy of 2048 elements per gradient, then four kernels for all of them together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial

import torch
from torch import Tensor, nn

from gradscope.probe.signals.layout import spread
from gradscope.probe.signals.observer import CallKey, Histogram, Observation, Observer, Place, Readings, StepContext

MAX_ELEMENTS = 2048
LOWEST_LOG2 = -160
"""Below float32's smallest subnormal, 2^-149; smaller float64 values count into this first bin."""
HIGHEST_LOG2 = 131
"""Above float32's largest value, below 2^128."""
_NUM_BINS = HIGHEST_LOG2 - LOWEST_LOG2 + 1
_ZERO, _NONFINITE = _NUM_BINS, _NUM_BINS + 1
_ROW = _NUM_BINS + 2

UNDERFLOW_LOG2 = {"underflow_fp16": -25, "underflow_e5m2": -17, "underflow_e4m3": -10}
"""log2 of half the smallest subnormal, below which a value rounds to zero."""
FP16_OVERFLOW_LOG2 = 16
"""fp16's largest value is 65504, just below 2^16."""
_ROLES_WITHOUT_GRADIENT = frozenset({"dropout"})


class Magnitudes(Observer):
    """grad_zeros, grad_log2_max, underflow_* and overflow_fp16, and the histograms they are read from."""

    gradients = True

    def __init__(self, readings: Readings) -> None:
        super().__init__(readings)
        self._samples: list[tuple[str, CallKey, Tensor]] = []
        self._num_calls: dict[str, int] = {}

    def begin(self, step: int, stations: frozenset[tuple[str, int]] | None) -> None:  # noqa: D102
        self._samples.clear()
        self._num_calls.clear()

    def wants(self, name: str, module: nn.Module, role: str) -> bool:  # noqa: D102
        return role not in _ROLES_WITHOUT_GRADIENT and any(True for _ in module.parameters())

    def gradient(self, call: CallKey, grad: Tensor) -> None:  # noqa: D102
        self._samples.append(("activation", Place(call.module, call.call), spread(grad, MAX_ELEMENTS)))

    def parameters(self, grads: Iterable[tuple[str, Tensor | None]]) -> None:  # noqa: D102
        for name, grad in grads:
            if grad is not None and grad.is_floating_point() and grad.layout is torch.strided:
                self._samples.append(("parameter", Place(name), spread(grad, MAX_ELEMENTS)))

    def finish(self, context: StepContext) -> None:  # noqa: D102
        scale_log2 = math.log2(context.loss_scale) if context.loss_scale else 0.0
        alike: dict[tuple[torch.device, int], list[tuple[str, CallKey, Tensor]]] = {}
        for sample in self._samples:
            alike.setdefault((sample[2].device, sample[2].numel()), []).append(sample)
        for group in alike.values():
            counts = log2_counts(torch.stack([values.to(torch.float64) for _, _, values in group]))
            owners = [(kind, key) for kind, key, _ in group]
            self.readings.add_vector(counts.reshape(-1), partial(self._read, owners=owners, scale_log2=scale_log2))
        self._samples.clear()

    def _read(self, numbers: Tensor, owners: list[tuple[str, CallKey]], scale_log2: float) -> None:
        counts_SK = numbers.view(len(owners), _ROW)
        for metric, values in summaries(counts_SK).items():
            for (_, key), value in zip(owners, values.tolist(), strict=True):
                if not math.isnan(value):
                    self.readings.observations.append(Observation(metric, key.module, key.call, value))
        for (kind, key), counts in zip(owners, counts_SK, strict=True):
            self.readings.histograms.append(_histogram(key, kind, counts, round(scale_log2)))


def log2_counts(values_SN: Tensor) -> Tensor:
    """Count floor(log2|g|) of S samples of N elements into bins from LOWEST_LOG2, then zeros and non-finite ones.

    Returns:
        Counts of shape (S, bins + 2), on the device.
    """
    exponent = torch.frexp(values_SN).exponent.to(torch.int64) - 1  # frexp's mantissa lies in [1/2, 1)
    bins = exponent.clamp(LOWEST_LOG2, HIGHEST_LOG2) - LOWEST_LOG2
    bins = torch.where(values_SN == 0, _ZERO, bins)
    bins = torch.where(torch.isfinite(values_SN), bins, _NONFINITE)
    counts = torch.zeros(values_SN.shape[0], _ROW, dtype=torch.float32, device=values_SN.device)
    return counts.scatter_add_(1, bins, torch.ones_like(bins, dtype=torch.float32))


def summaries(counts_SK: Tensor) -> dict[str, Tensor]:
    """Read the shares lost in narrower formats off rows of ``log2_counts``.

    Returns:
        Metric to one value a row; NaN where a share has nothing to be a share of.
    """
    finite_SK = counts_SK[:, :_NUM_BINS]
    total, nonzero = counts_SK.sum(1), finite_SK.sum(1)
    above = finite_SK[:, FP16_OVERFLOW_LOG2 - LOWEST_LOG2 :].sum(1) + counts_SK[:, _NONFINITE]
    result = {"grad_zeros": counts_SK[:, _ZERO] / total, "overflow_fp16": above / total}
    for metric, threshold in UNDERFLOW_LOG2.items():
        result[metric] = finite_SK[:, : threshold - LOWEST_LOG2].sum(1) / nonzero
    highest = _NUM_BINS - 1 - (finite_SK.flip(1) > 0).to(torch.int8).argmax(1)
    result["grad_log2_max"] = torch.where(nonzero > 0, highest.to(torch.float64) + LOWEST_LOG2, math.nan)
    return result


def _histogram(key: CallKey, kind: str, counts_K: Tensor, scale_log2: int) -> Histogram:
    used = counts_K[:_NUM_BINS].nonzero().view(-1)
    first, last = (int(used[0]), int(used[-1])) if used.numel() else (0, -1)
    return Histogram(
        name=key.module if key.call == 0 else f"{key.module}@{key.call}",
        kind=kind,
        first_log2=first + LOWEST_LOG2 - scale_log2,
        counts=[int(count) for count in counts_K[first : last + 1].tolist()],
        zeros=int(counts_K[_ZERO]),
        nonfinite=int(counts_K[_NONFINITE]),
    )
