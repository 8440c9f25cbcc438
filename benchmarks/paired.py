"""Ratios that hold on a noisy machine: two ways of running a step in turn, in one process; the median pair counts."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

WARM_UP = 2
LEAST_PAIRS, MOST_PAIRS = 5, 40
PAIRS_S = 20.0
"""So long pairs are taken, but at least five and at most forty."""


@dataclass(frozen=True)
class Ratio:
    """A paired timing.

    Attributes:
        median: Median over pairs of candidate time / plain time.
        low: Lower quartile of the same.
        high: Upper quartile of the same.
        plain_s: Median seconds of the plain step.
        num_pairs: How many pairs there were.
    """

    median: float
    low: float
    high: float
    plain_s: float
    num_pairs: int

    def __str__(self) -> str:
        spread = f"{self.low:.3f}–{self.high:.3f}" if self.num_pairs > 1 else "one pair"
        return f"{self.median:.3f} ({spread})"


def paired(
    plain: Callable[[], None],
    candidate: Callable[[], None],
    device: torch.device,
    seconds: float,
    *,
    warm_up: int = WARM_UP,
    least: int = LEAST_PAIRS,
) -> Ratio:
    """Time two callables in alternating order (A B, B A, …) and return the ratio pair by pair.

    Args:
        plain: What is compared with.
        candidate: What is compared.
        device: Whose queue has to be empty before and after.
        seconds: For how long to take pairs.
        warm_up: How often each is run before.
        least: So many pairs are taken even if that takes longer.
    """
    for function in (plain, candidate) * warm_up:
        function()
    ratios: list[float] = []
    plains: list[float] = []
    gc.collect()
    start = time.perf_counter()
    while len(ratios) < MOST_PAIRS and (len(ratios) < least or time.perf_counter() - start < seconds):
        order = (plain, candidate) if len(ratios) % 2 == 0 else (candidate, plain)
        taken = {function: _seconds(function, device) for function in order}
        ratios.append(taken[candidate] / taken[plain])
        plains.append(taken[plain])
    low, median, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return Ratio(median, low, high, statistics.median(plains), len(ratios))


def _seconds(function: Callable[[], None], device: torch.device) -> float:
    # On one thread the process's own time leaves out what other processes take; on several it would add them up.
    clock = time.process_time if device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    wait(device)
    start = clock()
    function()
    wait(device)
    return clock() - start


def wait(device: torch.device) -> None:
    """Wait for a device's queue to be empty."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
