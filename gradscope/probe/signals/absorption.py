"""Residual absorption: elements of a residual sum that the addition leaves unchanged as the branch is too small.

fl(x + f) = x although f != 0, in the dtype of the stream and as bfloat16 and float16 would have it. For Gaussian x and
f of ratio r the share is E erf(2^(e(x) - p) / (r sqrt 2)), p significand bits.

Cost: default level; two strided copies of 2048 elements per addition, then a dozen kernels for all of them together.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradscope.probe.signals.layout import spread
from gradscope.probe.signals.observer import Observer, Place, Readings, StepContext

MAX_ELEMENTS = 2048
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
            self._operands[key] = (spread(first, MAX_ELEMENTS), spread(second, MAX_ELEMENTS))

    def finish(self, context: StepContext) -> None:  # noqa: D102
        for site in context.additions:
            operands = self._operands.get(site.key)
            if operands is None:
                continue
            skip, branch = operands[site.skip], operands[1 - site.skip]
            place = Place(site.name, site.call)
            native = torch.promote_types(skip.dtype, branch.dtype)
            for metric, dtype in {"absorption": native, **_PREDICTED}.items():
                self.readings.add_derived(metric, place, absorbed(skip, branch, dtype), _share)
        self._operands.clear()


def absorbed(skip: Tensor, branch: Tensor, dtype: torch.dtype) -> Tensor:
    """Count (absorbed, non-zero) branch elements when the sum is taken in ``dtype``."""
    x, f = skip.to(dtype), branch.to(dtype)
    # A branch element that the narrower dtype itself rounds to zero is lost as well, so `branch` decides what is zero.
    nonzero = branch != 0
    return torch.stack([((x + f == x) & nonzero).sum(), nonzero.sum()]).to(torch.float32)


def _share(numbers: list[float]) -> float | None:
    return numbers[0] / numbers[1] if numbers[1] else None
