"""Ratios that hold on a noisy machine: two ways of running a step in turn, in one process; the median pair counts."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Ratio:
    """A paired timing.

    Attributes:
        median: Median over pairs of candidate time / plain time.
        low: Lower quartile of the same.
        high: Upper quartile of the same.
        plain_s: Median seconds of the plain step.
    """

    median: float
    low: float
    high: float
    plain_s: float


def paired(plain: Callable[[], None], candidate: Callable[[], None], repeats: int, device: torch.device) -> Ratio:
    """Time two callables in alternating order (A B, B A, …) and return the ratio pair by pair."""
    for function in (plain, candidate):
        function()
    ratios, plains = [], []
    gc.collect()
    for repeat in range(repeats):
        order = (plain, candidate) if repeat % 2 == 0 else (candidate, plain)
        seconds = {function: _seconds(function, device) for function in order}
        ratios.append(seconds[candidate] / seconds[plain])
        plains.append(seconds[plain])
    low, median, high = statistics.quantiles(ratios, n=4)
    return Ratio(median, low, high, statistics.median(plains))


def _seconds(function: Callable[[], None], device: torch.device) -> float:
    _wait(device)
    start = time.perf_counter()
    function()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
