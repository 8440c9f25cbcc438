"""Residual absorption: elements of a residual sum that the addition leaves unchanged as the branch is too small.

fl(x + f) = x although f != 0, in the dtype of the stream and as bfloat16 and float16 would have it. For Gaussian x and
f of ratio r the share is E erf(2^(e(x) - p) / (r sqrt 2)), p significand bits.

Cost: default level; two strided copies of 1024 elements per addition, then about ten kernels a number format for
128 of them.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from gradscope.probe.signals.layout import spread_alike
from gradscope.probe.signals.observer import Addition, Observer, Place, Readings, StepContext

MAX_ELEMENTS = 1024
"""Elements looked at of one operand."""
SITES_AT_ONCE = 128
"""So many operands are half a megabyte: what is worked on stays in the cache."""
_PREDICTED = {"absorption_bf16": torch.bfloat16, "absorption_fp16": torch.float16}


class Absorption(Observer):
    """absorption, absorption_bf16 and absorption_fp16 of every residual site."""

    additions = True

    def __init__(self, readings: Readings) -> None:
        super().__init__(readings)
        self._operands: dict[int, tuple[Tensor, Tensor]] = {}

    def begin(self, step: int, stations: frozenset[tuple[str, int]] | None) -> None:  # noqa: D102
        self._operands.clear()

    def addition(self, key: int, first: Tensor, second: Tensor) -> None:  # noqa: D102
        if first.is_floating_point() and second.is_floating_point() and first.shape == second.shape and first.numel():
            self._operands[key] = spread_alike(first, second, MAX_ELEMENTS)

    def finish(self, context: StepContext) -> None:  # noqa: D102
        alike: dict[tuple[torch.dtype, torch.dtype, torch.device, int], list[tuple[Addition, Tensor, Tensor]]] = {}
        for site in context.additions:
            operands = self._operands.get(site.key)
            if operands is not None:
                skip, branch = operands[site.skip], operands[1 - site.skip]
                kind = (skip.dtype, branch.dtype, skip.device, skip.numel())
                alike.setdefault(kind, []).append((site, skip, branch))
        for group in alike.values():
            for i in range(0, len(group), SITES_AT_ONCE):
                self._together(group[i : i + SITES_AT_ONCE])
        self._operands.clear()

    def _together(self, sites: list[tuple[Addition, Tensor, Tensor]]) -> None:
        skip_SN = torch.stack([skip for _, skip, _ in sites])
        branch_SN = torch.stack([branch for _, _, branch in sites])
        formats = {"absorption": torch.promote_types(skip_SN.dtype, branch_SN.dtype), **_PREDICTED}
        places = [Place(site.name, site.call) for site, _, _ in sites]
        for metric, dtype in formats.items():
            counts = absorbed(skip_SN, branch_SN, dtype)
            self.readings.add_vector(counts.reshape(-1), partial(self._read, metric=metric, places=places))

    def _read(self, numbers: Tensor, metric: str, places: list[Place]) -> None:
        for place, count, total in zip(places, *numbers.view(2, -1).tolist(), strict=True):
            if total:
                self.readings.add(metric, place.module, place.call, count / total)


def absorbed(skip: Tensor, branch: Tensor, dtype: torch.dtype) -> Tensor:
    """Count (absorbed, non-zero) branch elements along the last axis when the sum is taken in ``dtype``."""
    x, f = skip.to(dtype), branch.to(dtype)
    # A branch element that the narrower dtype itself rounds to zero is lost as well, so `branch` decides what is zero.
    nonzero = branch != 0
    return torch.stack([((x + f == x) & nonzero).sum(-1), nonzero.sum(-1)]).to(torch.float32)
