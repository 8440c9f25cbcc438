"""Small tensors gathered over a step, so that one set of kernels serves many of them.

A dozen kernels on a few thousand numbers cost their launches and nothing else; a network with a hundred attentions
launches them once instead of a hundred times. What is gathered is copied (nothing of the step is kept alive) and worked
through as soon as it is a few megabytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from gradscope.probe.signals.observer import CallKey, Readings

MOST_ELEMENTS = 1 << 20
"""Elements that may wait: 4 MB in float32."""

Reader = Callable[[CallKey, list[float]], None]
"""Told of one tensor's numbers when they have arrived."""


class Gathered:
    """Tensors that wait to be reduced together with others of their shape.

    Args:
        reduce: Makes a row of a few numbers out of each of N stacked tensors: (N, ...) to (N, M).
    """

    def __init__(self, reduce: Callable[[Tensor], Tensor]) -> None:
        self._reduce = reduce
        self._waiting: dict[tuple[torch.Size, torch.dtype, torch.device], list[tuple[CallKey, Tensor]]] = {}
        self._num_elements = 0
        self._reduced: list[tuple[list[CallKey], Tensor]] = []

    def clear(self) -> None:
        """Forget everything."""
        self._waiting.clear()
        self._reduced.clear()
        self._num_elements = 0

    def add(self, key: CallKey, tensor: Tensor) -> None:
        """Let a tensor wait. It has to be a copy: what becomes of the user's tensors is the user's."""
        self._waiting.setdefault((tensor.shape, tensor.dtype, tensor.device), []).append((key, tensor))
        self._num_elements += tensor.numel()
        if self._num_elements > MOST_ELEMENTS:
            self._work()

    def finish(self, readings: Readings, read: Reader) -> None:
        """Reduce what still waits and queue all numbers for the transfer."""
        self._work()
        for keys, numbers in self._reduced:
            readings.add_vector(numbers.reshape(-1), partial(_read, keys=keys, read=read))
        self._reduced.clear()

    def _work(self) -> None:
        for group in self._waiting.values():
            keys = [key for key, _ in group]
            self._reduced.append((keys, self._reduce(torch.stack([tensor for _, tensor in group]))))
        self._waiting.clear()
        self._num_elements = 0


def _read(numbers: Tensor, keys: list[CallKey], read: Reader) -> None:
    for key, row in zip(keys, numbers.view(len(keys), -1).tolist(), strict=True):
        read(key, row)
