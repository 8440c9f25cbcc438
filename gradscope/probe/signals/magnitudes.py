"""Histograms of log2|g| of gradients, and what a narrower number format would lose of them.

Each gradient is represented by at most 1024 of its elements (128 in networks with thousands of gradients), in evenly
spread runs of four. With n independent ones a share p is known to about sqrt(p (1 - p) / n): 0.3 % at p = 1 %, 0.6 %
where neighbours are alike.

Formats (smallest subnormal; half of it rounds to zero): fp16 2^-24, E5M2 2^-16, E4M3 2^-9 (Micikevicius 2018, 2022).
Gradients are looked at as they flow, that is multiplied by the loss scale; histograms are divided by it again.

Cost: default level; one strided copy of 1024 elements per gradient, then six kernels for every 128 of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache, partial

import torch
from torch import Tensor, nn

from gradscope.probe.signals.layout import RUN, spread, spread_view
from gradscope.probe.signals.observer import CallKey, Histogram, Observation, Observer, Place, Readings, StepContext

MAX_ELEMENTS = 1024
MIN_ELEMENTS = 128
MAX_TOTAL = 1 << 18
"""Elements looked at in all, as far as no gradient's share falls below the minimum: up to 256 have the maximum."""
SAMPLES_AT_ONCE = 128
"""So many samples in float64 are a megabyte: what is worked on stays in the cache and is no new memory each time."""
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
        self._num_elements = MAX_ELEMENTS
        self._num_wanted = 0

    def attach(self, model: nn.Module) -> None:  # noqa: D102
        self._num_wanted = sum(1 for _ in model.parameters())

    def begin(self, step: int, stations: frozenset[tuple[str, int]] | None) -> None:  # noqa: D102
        self._samples.clear()
        share = MAX_TOTAL // max(1, self._num_wanted) // RUN * RUN
        self._num_elements = max(MIN_ELEMENTS, min(MAX_ELEMENTS, share))

    def wants(self, name: str, module: nn.Module, role: str) -> bool:  # noqa: D102
        wanted = role not in _ROLES_WITHOUT_GRADIENT and next(module.parameters(), None) is not None
        self._num_wanted += wanted
        return wanted

    def gradient(self, call: CallKey, grad: Tensor) -> None:  # noqa: D102
        self._samples.append(("activation", Place(call.module, call.call), spread(grad, self._num_elements)))

    def parameters(self, grads: Iterable[tuple[str, Tensor | None]]) -> None:  # noqa: D102
        for name, grad in grads:
            if grad is not None and grad.is_floating_point() and grad.layout is torch.strided:
                # No copy: gradients stay what they are until `finish`, which follows at once.
                self._samples.append(("parameter", Place(name), spread_view(grad, self._num_elements)))

    def finish(self, context: StepContext) -> None:  # noqa: D102
        scale_log2 = math.log2(context.loss_scale) if context.loss_scale else 0.0
        alike: dict[tuple[torch.device, torch.Size], list[tuple[str, CallKey, Tensor]]] = {}
        for sample in self._samples:
            alike.setdefault((sample[2].device, sample[2].shape), []).append(sample)
        for group in alike.values():
            for some in (group[i : i + SAMPLES_AT_ONCE] for i in range(0, len(group), SAMPLES_AT_ONCE)):
                counts = log2_counts(torch.stack([values for _, _, values in some]).flatten(1))
                owners = [(kind, key) for kind, key, _ in some]
                self.readings.add_vector(counts.reshape(-1), partial(self._read, owners=owners, scale_log2=scale_log2))
        self._samples.clear()

    def _read(self, numbers: Tensor, owners: list[tuple[str, CallKey]], scale_log2: float) -> None:
        counts_SK = numbers.view(len(owners), _ROW)
        for metric, values in summaries(counts_SK).items():
            self.readings.observations.extend([
                Observation(metric, key.module, key.call, value)
                for (_, key), value in zip(owners, values.tolist(), strict=True)
                if value == value  # noqa: PLR0124 - a share of nothing is NaN
            ])
        self.readings.histograms += _histograms(owners, counts_SK, round(scale_log2))


def log2_counts(values_SN: Tensor) -> Tensor:
    """Count floor(log2|g|) of S samples of N elements into bins from LOWEST_LOG2, then zeros and non-finite ones.

    Returns:
        Counts of shape (S, bins + 2), on the device.
    """
    # In float64 every number of a narrower format is normal: its exponent is bits 52 to 62.
    fields = values_SN.abs().to(torch.float64).view(torch.int64).bitwise_right_shift_(52)
    bins = _bin_of_field(values_SN.device).index_select(0, fields.view(-1)).view(fields.shape)
    ones = torch.ones(1, device=values_SN.device).expand(bins.shape)
    return torch.zeros(len(bins), _ROW, device=values_SN.device).scatter_add_(1, bins, ones)


@lru_cache(maxsize=8)
def _bin_of_field(device: torch.device) -> Tensor:
    """Return the bin of every exponent field of float64, 0 (zero) to 2047 (infinity and NaN); the bias is 1023."""
    bins = torch.arange(2048, device=device).sub_(1023).clamp_(LOWEST_LOG2, HIGHEST_LOG2).sub_(LOWEST_LOG2)
    bins[0].fill_(_ZERO)
    bins[-1].fill_(_NONFINITE)
    return bins


def summaries(counts_SK: Tensor) -> dict[str, Tensor]:
    """Read the shares lost in narrower formats off rows of ``log2_counts``.

    Returns:
        Metric to one value a row; NaN where a share has nothing to be a share of.
    """
    finite_SK, low = _used(counts_SK)
    nonzero = finite_SK.sum(1)
    total = nonzero + counts_SK[:, _ZERO] + counts_SK[:, _NONFINITE]

    def below(exponent: int) -> Tensor:
        return finite_SK[:, : max(0, exponent - low)].sum(1)

    above = nonzero - below(FP16_OVERFLOW_LOG2) + counts_SK[:, _NONFINITE]
    result = {"grad_zeros": counts_SK[:, _ZERO] / total, "overflow_fp16": above / total}
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
    rows = zip(
        owners, finite_SK.to(torch.int64).tolist(), firsts.tolist(), ends.tolist(),
        counts_SK[:, _ZERO:].to(torch.int64).tolist(), strict=True,
    )  # fmt: skip
    return [
        Histogram(
            name=key.module if key.call == 0 else f"{key.module}@{key.call}",
            kind=kind,
            first_log2=first + low - scale_log2,
            counts=counts[first:end],
            zeros=zeros,
            nonfinite=nonfinite,
        )
        for (kind, key), counts, first, end, (zeros, nonfinite) in rows
    ]
