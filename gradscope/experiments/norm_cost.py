"""LayerNorm against RMSNorm: time, arithmetic, and what dropping the mean changes in the gradient."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from gradscope.experiments.result import Check, Claim, Table, table
from gradscope.experiments.running import Progress
from gradscope.experiments.sources import HISTORY

SHAPES = ((2048, 256), (2048, 1024), (512, 4096))
"""Tokens and width."""
LAYER_NORM_OPERATIONS, RMS_NORM_OPERATIONS = 7, 4
"""Operations per element: LayerNorm sums, centres, squares, sums, scales, multiplies, adds; RMSNorm squares, sums,
scales, multiplies."""
CHEAPER = 0.9
"""What "about 20 % cheaper" needs at least, as a ratio of times."""


def run(quick: bool, progress: Progress) -> tuple[Sequence[Table], Sequence[Claim], Sequence[str]]:
    """Time forward and backward of both, alternating, and look at the gradients."""
    rounds = 5 if quick else 25
    ratios: dict[tuple[int, int], float] = {}
    rows: list[tuple[int, int, float, float, float]] = []
    for done, (tokens, width) in enumerate(SHAPES):
        progress(f"{tokens} x {width}", done, len(SHAPES))
        layer, rms = time_both(tokens, width, rounds)
        ratios[tokens, width] = rms / layer
        rows.append((tokens, width, 1e3 * layer, 1e3 * rms, rms / layer))
    progress("done", len(SHAPES), len(SHAPES))
    times = table(
        "Forward and backward (median)",
        ("tokens", "width", "LayerNorm (ms)", "RMSNorm (ms)", "RMSNorm / LayerNorm"),
        rows,
        f"Processor time on this machine with torch {torch.__version__}, {torch.get_num_threads()} thread(s).",
    )
    return [times], [_cost_claim(ratios), _mean_claim()], ["Timings are of this machine: read the ratios only."]


def time_both(tokens: int, width: int, rounds: int) -> tuple[float, float]:
    """Median seconds of forward and backward of LayerNorm and of RMSNorm, timed in turn.

    Processor time, so that other programs on the machine do not count; with several threads it is their sum.
    """
    norms = nn.LayerNorm(width), nn.RMSNorm(width)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(tokens, width, generator=generator).requires_grad_()
    upstream = torch.randn(tokens, width, generator=generator)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 1):
        for norm, taken in zip(norms, times, strict=True):
            began = time.process_time()
            norm(x).backward(upstream)
            taken.append(time.process_time() - began)
    # The first round warms up caches and allocators.
    return statistics.median(times[0][1:]), statistics.median(times[1][1:])


def _cost_claim(ratios: dict[tuple[int, int], float]) -> Claim:
    checks = [
        Check(f"{tokens} x {width}, CPU", "time RMSNorm / LayerNorm", ratio, high=CHEAPER)
        for (tokens, width), ratio in ratios.items()
    ]
    arithmetic = RMS_NORM_OPERATIONS / LAYER_NORM_OPERATIONS
    checks.append(Check("operations per element", "RMSNorm / LayerNorm", arithmetic, high=CHEAPER))
    return Claim(
        "RMSNorm costs about 20 % less than LayerNorm.",
        HISTORY,
        tuple(checks),
        "It needs fewer operations; whether it takes less time is up to the kernel. Promise no speed-up.",
    )


def _mean_claim() -> Claim:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(32, 64, dtype=torch.float64, generator=generator) + 1.0
    x.requires_grad_()
    upstream = torch.randn(32, 64, dtype=torch.float64, generator=generator)
    y = F.rms_norm(x, (64,), eps=0.0)
    (gradient,) = torch.autograd.grad(y, x, upstream)
    (layer_gradient,) = torch.autograd.grad(F.layer_norm(x, (64,), eps=0.0), x, upstream)
    along_x = float(((gradient * x).sum(-1).abs() / (gradient.norm(dim=-1) * x.norm(dim=-1))).detach().max())
    return Claim(
        "RMSNorm leaves out the centring on the mean.",
        HISTORY,
        (
            Check("RMSNorm", "mean of the output of inputs with mean 1", float(y.mean().detach()), low=0.5),
            Check("RMSNorm", "largest mean of an input gradient", float(gradient.mean(-1).abs().max()), low=1e-3),
            Check(
                "LayerNorm", "largest mean of an input gradient", float(layer_gradient.mean(-1).abs().max()), high=1e-9
            ),
            Check("RMSNorm", "largest cosine of input gradient and input", along_x, high=1e-9),
        ),
        "Its gradient is orthogonal to the input, as LayerNorm's is to the centred input, but not free of a mean.",
    )
