"""How the analysis of the graph grows with the number of nodes: seconds, and the slope on log-log paper."""

from __future__ import annotations

import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from benchmarks.workloads import ResidualMLP
from gradscope.probe.session import Session

BLOCKS = (10, 100, 1000, 10_000)
"""About 10^2 to 10^5 graph nodes: a residual block of the MLP has ten."""


def analysis_seconds(num_blocks: int) -> tuple[int, float]:
    """Return the graph's number of nodes and the seconds a first watched step takes beyond a later one."""
    torch.manual_seed(0)
    model = ResidualMLP(num_blocks, width=8)
    inputs, labels = torch.randn(4, 32), torch.arange(4)
    session = Session(model, "default", Path.cwd())
    seconds = [_step(model, session, inputs, labels, number) for number in range(3)]
    return 10 * num_blocks, max(1e-6, seconds[0] - min(seconds[1:]))


def slope(points: list[tuple[int, float]]) -> float:
    """Fit log seconds against log nodes by least squares; 1 is linear."""
    xs, ys = [math.log(n) for n, _ in points], [math.log(s) for _, s in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / sum((x - mean_x) ** 2 for x in xs)


def _step(
    model: torch.nn.Module, session: Session, inputs: torch.Tensor, labels: torch.Tensor, number: int
) -> float:
    start = time.perf_counter()
    with session.step(number) as watch:
        with watch.forward():
            loss = F.cross_entropy(model(inputs), labels)
        handle = watch.rows.keep(loss)
        loss.backward()
    session.record(number, watch, None, None, handle)
    return time.perf_counter() - start
