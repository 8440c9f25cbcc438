"""What a product multiplies a stream or a branch by, where that has no gradient: a number, a scale, a mask."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Factor:
    """What a product multiplied by, where that has no gradient.

    Attributes:
        value: The number; None for a tensor of several.
        elementwise: The factor has an element for each element: a mask, not a scale.
        keeps: It keeps some samples and drops the others (stochastic depth): on average a factor of one.
    """

    value: float | None
    elementwise: bool = False
    keeps: bool = False


def factor_from(factor: torch.Tensor, result: torch.Tensor) -> Factor:
    """Say what a tensor without a gradient multiplies by; a mask of tokens or channels multiplies what stays by one."""
    plain = type(factor) is torch.Tensor and not (factor.is_meta or factor.is_complex()) and factor.dim() > 1
    if plain and 1 < factor.numel() == len(factor) == len(result):
        kept = {float(value) for value in factor.flatten().tolist()} - {0.0}
        if len(kept) <= 1:
            return Factor(1.0, keeps=True)
    elif plain and 1 < factor.numel() < result.numel() and bool(((factor == 0) | (factor == 1)).all()):
        return Factor(1.0)
    return Factor(None, factor.numel() == result.numel())
