"""Histograms of log2|g| of gradients, and what a narrower number format would lose of them.

Each gradient is represented by at most 1024 of its elements (128 in networks with thousands of gradients), in evenly
spread runs of four. With n independent ones a share p is known to about sqrt(p (1 - p) / n): 0.3 % at p = 1 %, 0.6 %
where neighbours are alike.

Gradients are looked at as they flow, that is multiplied by the loss scale; histograms are divided by it again.

Cost: default level; one strided copy of 1024 elements per gradient, then a dozen kernels for every 32 of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gradscope.probe.listing import has_parameters, named_parameters
from gradscope.probe.signals.bins import ROW, ZERO, last_bins, log2_counts, summaries, used_bins
from gradscope.probe.signals.layout import RUN, spread, spread_rows
from gradscope.probe.signals.observer import CallKey, Histogram, Observation, Observer, Place, Readings, StepContext

MAX_ELEMENTS, MIN_ELEMENTS = 1024, 128
"""Elements looked at of one gradient, where there are few gradients and where there are many."""
MAX_TOTAL = 1 << 18
"""Elements looked at in all, as far as no gradient's share falls below the minimum: up to 256 have the maximum."""
ELEMENTS_AT_ONCE = 1 << 15
"""So many are 128 kB in float32: what is worked on stays in the cache and is no new memory each time."""
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
        self._num_wanted = len(named_parameters(model))

    def begin(self, step: int, stations: frozenset[tuple[str, int]] | None) -> None:  # noqa: D102
        self._of_outputs.clear()
        self._of_parameters.clear()
        share = MAX_TOTAL // max(1, self._num_wanted) // RUN * RUN
        self._num_elements = max(MIN_ELEMENTS, min(MAX_ELEMENTS, share))

    def wants(self, name: str, module: nn.Module, role: str) -> bool:  # noqa: D102
        wanted = role not in _ROLES_WITHOUT_GRADIENT and has_parameters(module)
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
        counts_SK = numbers.view(len(owners), ROW)
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


def _histograms(owners: list[tuple[str, CallKey]], counts_SK: Tensor, scale_log2: int) -> list[Histogram]:
    finite_SK, low = used_bins(counts_SK)
    ends = last_bins(finite_SK)
    firsts = torch.minimum((finite_SK > 0).to(torch.uint8).argmax(1), ends)
    columns = torch.arange(finite_SK.shape[1])
    inside = (columns >= firsts.unsqueeze(1)) & (columns < ends.unsqueeze(1))
    flat = finite_SK[inside].tolist()  # a row's counts from its first to its last that is not 0, row after row
    found = []
    start = 0
    spans = zip(owners, firsts.tolist(), ends.tolist(), counts_SK[:, ZERO:].tolist(), strict=True)
    for (kind, key), first, end, (zeros, nonfinite) in spans:
        stop = start + end - first
        name = key.module if key.call == 0 else f"{key.module}@{key.call}"
        found.append(Histogram(name, kind, first + low - scale_log2, flat[start:stop], zeros, nonfinite))
        start = stop
    return found
