"""Histograms of log2|g| of gradients, and what a narrower number format would lose of them.

Each gradient is represented by at most 1024 of its elements (128 in networks with thousands of gradients), in evenly
spread runs of four. With n independent ones a share p is known to about sqrt(p (1 - p) / n): 0.3 % at p = 1 %, 0.6 %
where neighbours are alike.

Formats (smallest subnormal; half of it rounds to zero): fp16 2^-24, E5M2 2^-16, E4M3 2^-9 (Micikevicius 2018, 2022).
Gradients are looked at as they flow, that is multiplied by the loss scale; histograms are divided by it again.

Cost: default level; one strided copy of 1024 elements per gradient, then a dozen kernels for every 32 of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gradscope.probe.signals.layout import RUN, spread, spread_rows
from gradscope.probe.signals.observer import CallKey, Histogram, Observation, Observer, Place, Readings, StepContext

MAX_ELEMENTS = 1024
MIN_ELEMENTS = 128
MAX_TOTAL = 1 << 18
"""Elements looked at in all, as far as no gradient's share falls below the minimum: up to 256 have the maximum."""
ELEMENTS_AT_ONCE = 1 << 15
"""So many are 128 kB in float32: what is worked on stays in the cache and is no new memory each time."""
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


class Sample(NamedTuple):
    """Elements of some gradients: a row for each owner."""

    kind: str
    owners: list[CallKey]
    rows: Tensor


class Magnitudes(Observer):
    """grad_zeros, grad_log2_max, underflow_* and overflow_fp16, and the histograms they are read from."""

    gradients = True

    def __init__(self, readings: Readings) -> None:
        super().__init__(readings)
        self._of_outputs: list[Sample] = []
        self._of_parameters: dict[tuple[str, ...], Tensor] = {}
        self._num_elements = MAX_ELEMENTS
        self._num_wanted = 0

    def attach(self, model: nn.Module) -> None:  # noqa: D102
        self._num_wanted = sum(1 for _ in model.parameters())

    def begin(self, step: int, stations: frozenset[tuple[str, int]] | None) -> None:  # noqa: D102
        self._of_outputs.clear()
        self._of_parameters.clear()
        share = MAX_TOTAL // max(1, self._num_wanted) // RUN * RUN
        self._num_elements = max(MIN_ELEMENTS, min(MAX_ELEMENTS, share))

    def wants(self, name: str, module: nn.Module, role: str) -> bool:  # noqa: D102
        wanted = role not in _ROLES_WITHOUT_GRADIENT and next(module.parameters(), None) is not None
        self._num_wanted += wanted
        return wanted

    def gradient(self, call: CallKey, grad: Tensor) -> None:  # noqa: D102
        self._of_outputs.append(Sample("activation", [call], spread(grad, self._num_elements).unsqueeze(0)))

    def parameters(self, names: Sequence[str], grads: Tensor) -> None:  # noqa: D102
        if len(names) == 1:
            rows = spread(grads, self._num_elements).unsqueeze(0)
        else:
            rows = spread_rows(grads, self._num_elements)
        key = tuple(names)
        self._of_parameters.pop(key, None)  # an earlier backward's: later ones come last
        self._of_parameters[key] = rows

    def finish(self, context: StepContext) -> None:  # noqa: D102
        scale_log2 = math.log2(context.loss_scale) if context.loss_scale else 0.0
        alike: dict[tuple[torch.device, torch.dtype, int], list[Sample]] = {}
        for sample in (*self._of_outputs, *_last(self._of_parameters)):
            rows = sample.rows
            alike.setdefault((rows.device, rows.dtype, rows.shape[1]), []).append(sample)
        for group in alike.values():
            owners = [(sample.kind, owner) for sample in group for owner in sample.owners]
            counts = torch.cat([log2_counts(rows) for rows in _together(group)])
            self.readings.add_vector(counts.reshape(-1), partial(self._read, owners=owners, scale_log2=scale_log2))
        self._of_outputs.clear()
        self._of_parameters.clear()

    def _read(self, numbers: Tensor, owners: list[tuple[str, CallKey]], scale_log2: float) -> None:
        counts_SK = numbers.view(len(owners), _ROW)
        places = [(key.module, key.call) for _, key in owners]
        for metric, values in summaries(counts_SK).items():
            self.readings.observations.extend([
                Observation(metric, module, call, value)
                for (module, call), value in zip(places, values.tolist(), strict=True)
                if value == value  # noqa: PLR0124 - a share of nothing is NaN
            ])
        self.readings.histograms += _histograms(owners, counts_SK, round(scale_log2))


def _last(found: Mapping[tuple[str, ...], Tensor]) -> list[Sample]:
    """Return the samples of parameters, of each parameter the last that was taken."""
    samples: list[Sample] = []
    known: set[str] = set()
    for names, rows in reversed(list(found.items())):
        new = [i for i, name in enumerate(names) if name not in known]
        known.update(names)
        if new:
            kept = rows if len(new) == len(names) else torch.stack([rows[i] for i in new])
            samples.append(Sample("parameter", [Place(names[i]) for i in new], kept))
    return samples


def _together(samples: list[Sample]) -> Iterator[Tensor]:
    """Yield the rows of samples of one kind, as many at once as stay in the cache."""
    waiting: list[Tensor] = []
    num_elements = 0
    for sample in samples:
        waiting.append(sample.rows)
        num_elements += sample.rows.numel()
        if num_elements >= ELEMENTS_AT_ONCE:
            yield torch.cat(waiting)
            waiting, num_elements = [], 0
    if waiting:
        yield torch.cat(waiting)


def log2_counts(values_SN: Tensor) -> Tensor:
    """Count floor(log2|g|) of S samples of N elements into bins from LOWEST_LOG2, then zeros and non-finite ones.

    Returns:
        Counts of shape (S, bins + 2), whole numbers in int32, on the device.
    """
    if values_SN.dtype is torch.float64:
        fields = values_SN.abs().view(torch.int64).bitwise_right_shift_(52)
        bins = _bin_of_field64(values_SN.device).index_select(0, fields.view(-1)).view(fields.shape)
    else:
        values = values_SN.to(torch.float32)
        fields = _fields32(values)
        # A subnormal number is a normal one once it is multiplied, exactly, by a power of two.
        fields = torch.where(fields > 0, fields + _LIFT_LOG2, _fields32(values * 2.0**_LIFT_LOG2))
        bins = _bin_of_field32(values_SN.device).index_select(0, fields.view(-1)).view(fields.shape)
    bins = bins + torch.arange(0, len(bins) * _ROW, _ROW, dtype=torch.int32, device=bins.device).unsqueeze(1)
    ones = torch.ones(1, dtype=torch.int32, device=bins.device).expand(bins.numel())
    counts = torch.zeros(len(bins) * _ROW, dtype=torch.int32, device=bins.device)
    return counts.index_add_(0, bins.view(-1), ones).view(len(bins), _ROW)


_LIFT_LOG2 = 64
"""More than float32's 23 bits of mantissa, by which its subnormals lie below its smallest normal number, 2^-126."""


def _fields32(values: Tensor) -> Tensor:
    """Return the exponent fields of float32 numbers, 0 (zero and subnormal) to 255 (infinity and NaN)."""
    return values.view(torch.int32).bitwise_and(0x7FFFFFFF).bitwise_right_shift_(23)


@lru_cache(maxsize=8)
def _bin_of_field64(device: torch.device) -> Tensor:
    """Return the bin of every exponent field of float64, 0 (zero) to 2047 (infinity and NaN); the bias is 1023."""
    return _bins(torch.arange(2048, dtype=torch.int32, device=device).sub_(1023))


@lru_cache(maxsize=8)
def _bin_of_field32(device: torch.device) -> Tensor:
    """Return the bin of every lifted exponent field of float32, 0 (zero) to 255 + 64; the bias is 127."""
    return _bins(torch.arange(256 + _LIFT_LOG2, dtype=torch.int32, device=device).sub_(127 + _LIFT_LOG2))


def _bins(log2: Tensor) -> Tensor:
    bins = log2.clamp(LOWEST_LOG2, HIGHEST_LOG2).sub_(LOWEST_LOG2)
    bins[0].fill_(_ZERO)
    bins[-1].fill_(_NONFINITE)
    return bins


def summaries(counts_SK: Tensor) -> dict[str, Tensor]:
    """Read the shares lost in narrower formats off rows of ``log2_counts``.

    Returns:
        Metric to one value a row; NaN where a share has nothing to be a share of.
    """
    finite_SK, low = _used(counts_SK)
    finite_SK = finite_SK.to(torch.float64)
    zeros, nonfinite = counts_SK[:, _ZERO].to(torch.float64), counts_SK[:, _NONFINITE].to(torch.float64)
    nonzero = finite_SK.sum(1)
    total = nonzero + zeros + nonfinite

    def below(exponent: int) -> Tensor:
        return finite_SK[:, : max(0, exponent - low)].sum(1)

    above = nonzero - below(FP16_OVERFLOW_LOG2) + nonfinite
    result = {"grad_zeros": zeros / total, "overflow_fp16": above / total}
    result |= {metric: below(threshold) / nonzero for metric, threshold in UNDERFLOW_LOG2.items()}
    result["grad_log2_max"] = torch.where(nonzero > 0, _ends(finite_SK) - 1.0 + low, math.nan)
    return result


def _used(counts_SK: Tensor) -> tuple[Tensor, int]:
    """Return the finite bins from the first to the last that any row uses (at least one), and log2 of the first."""
    used = counts_SK[:, :_NUM_BINS].any(0).nonzero().view(-1).tolist() or [0]
    return counts_SK[:, used[0] : used[-1] + 1].contiguous(), used[0] + LOWEST_LOG2


def _ends(finite_SK: Tensor) -> Tensor:
    """Return the bin after the last that is used, 0 where none is."""
    bins = torch.arange(1, finite_SK.shape[1] + 1)
    return torch.where(finite_SK > 0, bins, 0).amax(1)


def _histograms(owners: list[tuple[str, CallKey]], counts_SK: Tensor, scale_log2: int) -> list[Histogram]:
    finite_SK, low = _used(counts_SK)
    ends = _ends(finite_SK)
    firsts = torch.minimum((finite_SK > 0).to(torch.uint8).argmax(1), ends)
    columns = torch.arange(finite_SK.shape[1])
    inside = (columns >= firsts.unsqueeze(1)) & (columns < ends.unsqueeze(1))
    flat = finite_SK[inside].tolist()  # a row's counts from its first to its last that is not 0, row after row
    found = []
    start = 0
    spans = zip(owners, firsts.tolist(), ends.tolist(), counts_SK[:, _ZERO:].tolist(), strict=True)
    for (kind, key), first, end, (zeros, nonfinite) in spans:
        stop = start + end - first
        name = key.module if key.call == 0 else f"{key.module}@{key.call}"
        found.append(Histogram(name, kind, first + low - scale_log2, flat[start:stop], zeros, nonfinite))
        start = stop
    return found
