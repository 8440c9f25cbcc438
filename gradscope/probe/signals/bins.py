"""Counts of numbers by their power of two, and what a narrower number format would lose of them.

Formats (smallest subnormal; half of it rounds to zero): fp16 2^-24, E5M2 2^-16, E4M3 2^-9 (Micikevicius 2018, 2022).

Shape legend: S samples, N elements of each, K bins.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

LOWEST_LOG2 = -160
"""Below float32's smallest subnormal, 2^-149; smaller float64 values count into this first bin."""
HIGHEST_LOG2 = 131
"""Above float32's largest value, below 2^128."""
NUM_BINS = HIGHEST_LOG2 - LOWEST_LOG2 + 1
ZERO, NONFINITE = NUM_BINS, NUM_BINS + 1
ROW = NUM_BINS + 2
"""Counts of one sample: its bins, then what is zero and what is not finite."""

UNDERFLOW_LOG2 = {"underflow_fp16": -25, "underflow_e5m2": -17, "underflow_e4m3": -10}
"""log2 of half the smallest subnormal, below which a value rounds to zero."""
FP16_OVERFLOW_LOG2 = 16
"""fp16's largest value is 65504, just below 2^16."""
_LIFT_LOG2 = 64
"""More than float32's 23 bits of mantissa, by which its subnormals lie below its smallest normal number, 2^-126."""


def log2_counts(values_SN: Tensor) -> Tensor:
    """Count floor(log2|g|) of S samples of N elements into bins from LOWEST_LOG2, then zeros and non-finite ones.

    Returns:
        Counts of shape (S, bins + 2), whole numbers in int32, on the device.
    """
    if values_SN.dtype is torch.float64:
        fields = values_SN.abs().view(torch.int64).bitwise_right_shift_(52)
        bins = _bin_of_field64(values_SN.device).index_select(0, fields.view(-1)).view(fields.shape)
    else:
        values = values_SN.to(torch.float32)
        fields = _fields32(values)
        # A subnormal number is a normal one once it is multiplied, exactly, by a power of two.
        fields = torch.where(fields > 0, fields + _LIFT_LOG2, _fields32(values * 2.0**_LIFT_LOG2))
        bins = _bin_of_field32(values_SN.device).index_select(0, fields.view(-1)).view(fields.shape)
    bins = bins + torch.arange(0, len(bins) * ROW, ROW, dtype=torch.int32, device=bins.device).unsqueeze(1)
    ones = torch.ones(1, dtype=torch.int32, device=bins.device).expand(bins.numel())
    counts = torch.zeros(len(bins) * ROW, dtype=torch.int32, device=bins.device)
    return counts.index_add_(0, bins.view(-1), ones).view(len(bins), ROW)


def _fields32(values: Tensor) -> Tensor:
    """Return the exponent fields of float32 numbers, 0 (zero and subnormal) to 255 (infinity and NaN)."""
    return values.view(torch.int32).bitwise_and(0x7FFFFFFF).bitwise_right_shift_(23)


@lru_cache(maxsize=8)
def _bin_of_field64(device: torch.device) -> Tensor:
    """Return the bin of every exponent field of float64, 0 (zero) to 2047 (infinity and NaN); the bias is 1023."""
    return _bins(torch.arange(2048, dtype=torch.int32, device=device).sub_(1023))


@lru_cache(maxsize=8)
def _bin_of_field32(device: torch.device) -> Tensor:
    """Return the bin of every lifted exponent field of float32, 0 (zero) to 255 + 64; the bias is 127."""
    return _bins(torch.arange(256 + _LIFT_LOG2, dtype=torch.int32, device=device).sub_(127 + _LIFT_LOG2))


def _bins(log2: Tensor) -> Tensor:
    bins = log2.clamp(LOWEST_LOG2, HIGHEST_LOG2).sub_(LOWEST_LOG2)
    bins[0].fill_(ZERO)
    bins[-1].fill_(NONFINITE)
    return bins


def summaries(counts_SK: Tensor) -> dict[str, Tensor]:
    """Read the shares lost in narrower formats off rows of ``log2_counts``.

    Returns:
        Metric to one value a row; NaN where a share has nothing to be a share of.
    """
    finite_SK, low = used_bins(counts_SK)
    finite_SK = finite_SK.to(torch.float64)
    zeros, nonfinite = counts_SK[:, ZERO].to(torch.float64), counts_SK[:, NONFINITE].to(torch.float64)
    nonzero = finite_SK.sum(1)
    total = nonzero + zeros + nonfinite

    def below(exponent: int) -> Tensor:
        return finite_SK[:, : max(0, exponent - low)].sum(1)

    above = nonzero - below(FP16_OVERFLOW_LOG2) + nonfinite
    result = {"grad_zeros": zeros / total, "overflow_fp16": above / total}
    result |= {metric: below(threshold) / nonzero for metric, threshold in UNDERFLOW_LOG2.items()}
    result["grad_log2_max"] = torch.where(nonzero > 0, last_bins(finite_SK) - 1.0 + low, math.nan)
    return result


def used_bins(counts_SK: Tensor) -> tuple[Tensor, int]:
    """Return the finite bins from the first to the last that any row uses (at least one), and log2 of the first."""
    used = counts_SK[:, :NUM_BINS].any(0).nonzero().view(-1).tolist() or [0]
    return counts_SK[:, used[0] : used[-1] + 1].contiguous(), used[0] + LOWEST_LOG2


def last_bins(finite_SK: Tensor) -> Tensor:
    """Return the bin after the last that is used, 0 where none is."""
    bins = torch.arange(1, finite_SK.shape[1] + 1)
    return torch.where(finite_SK > 0, bins, 0).amax(1)
