"""Massive activations: the largest absolute value of a stream station over its root mean square.

Gaussian activations give about sqrt(2 ln n): 5 for 10^6 elements; a massive one 100 and more (Sun 2024).

Cost: default level; two passes over each station's output (over every block's output in the first watched step).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gradscope.probe.signals.observer import CallKey, Observer, Readings, StepContext, first_tensor

_ROLES = frozenset({"container", "embedding"})


class Peaks(Observer):
    """activation_peak of every station."""

    def __init__(self, readings: Readings) -> None:
        super().__init__(readings)
        self._stations: frozenset[tuple[str, int]] | None = None
        self._seen: list[tuple[CallKey, Tensor, int]] = []

    def begin(self, step: int, stations: frozenset[tuple[str, int]] | None) -> None:  # noqa: D102
        self._stations = stations
        self._seen.clear()

    def wants(self, name: str, module: nn.Module, role: str) -> bool:  # noqa: D102
        return name != "" and role in _ROLES

    def forward(self, call: CallKey, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: D102
        if self._stations is not None and (call.module, call.call) not in self._stations:
            return
        x = first_tensor(output)
        if x is not None and x.numel() > 1:
            # aminmax is one vectorised pass; the infinity norm takes 20 times as long on the CPU.
            lowest, highest = torch.aminmax(x)
            norm = torch.linalg.vector_norm(x, dtype=torch.promote_types(x.dtype, torch.float32))
            self._seen.append((call, torch.stack([lowest, highest, norm]), x.numel()))

    def finish(self, context: StepContext) -> None:  # noqa: D102
        for call, numbers, count in self._seen:
            if context.stations is None or (call.module, call.call) in context.stations:
                self.readings.add_derived("activation_peak", call, numbers, partial(_peak_over_rms, count=count))
        self._seen.clear()


def _peak_over_rms(numbers: list[float], count: int) -> float | None:
    lowest, highest, norm = numbers
    return max(-lowest, highest) * math.sqrt(count) / norm if norm > 0 else None
