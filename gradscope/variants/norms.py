"""Normalisation layers over the last dimension of B x T x D (batch, tokens, width)."""

from __future__ import annotations

import torch
from torch import nn

DYT_START = 0.5
"""Initial slope of DyT (Zhu 2025, alpha_0)."""

NUM_GROUPS = 4
"""Groups of GroupNorm: at width 64, 16 channels a group, as Wu & He 2018 recommend."""


class BatchNorm(nn.BatchNorm1d):
    """BatchNorm of each feature over all samples and tokens."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise over every dimension but the last."""
        return super().forward(x.flatten(0, -2)).view_as(x)


class GroupNorm(nn.GroupNorm):
    """GroupNorm of each token by itself, its features cut into groups."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise each token's groups."""
        return super().forward(x.flatten(0, -2)).view_as(x)


class DynamicTanh(nn.Module):
    """g tanh(a x) + b, a norm without statistics (Zhu 2025, DyT)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(DYT_START))
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Squash each element."""
        return self.weight * torch.tanh(self.slope * x) + self.bias


class WrittenLayerNorm(nn.Module):
    """LayerNorm as textbooks write it out, with the variance of the caller's choice.

    Args:
        width: Features per token.
        eps: Added to the variance.
        unbiased: ``x.var(dim=-1)`` as torch does by default, dividing by D - 1; nn.LayerNorm divides by D.
    """

    def __init__(self, width: int, eps: float = 1e-6, *, unbiased: bool = True) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))
        self.beta = nn.Parameter(torch.zeros(width))
        self.eps = eps
        self.unbiased = unbiased

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Centre and scale each token."""
        mean = x.mean(dim=-1, keepdim=True)
        var = x.var(dim=-1, keepdim=True, unbiased=self.unbiased)
        x_norm = (x - mean) / torch.sqrt(var + self.eps)
        return self.gamma * x_norm + self.beta


def through(module: nn.Module | None, x: torch.Tensor) -> torch.Tensor:
    """Pass a tensor through a part that may be left out."""
    if module is None:
        return x
    passed: torch.Tensor = module(x)
    return passed


def make_norm(kind: str, width: int, eps: float = 1e-5) -> nn.Module | None:
    """Make one norm of the kinds in `wiring.NORMS`; None for no norm."""
    match kind:
        case "layer":
            return nn.LayerNorm(width, eps)
        case "rms":
            return nn.RMSNorm(width, eps)
        case "batch":
            return BatchNorm(width, eps)
        case "group":
            return GroupNorm(NUM_GROUPS if width % NUM_GROUPS == 0 else 1, width, eps)
        case "dyt":
            return DynamicTanh(width)
        case "layer-biased":
            return WrittenLayerNorm(width, eps, unbiased=False)
        case "layer-unbiased":
            return WrittenLayerNorm(width, eps, unbiased=True)
        case _:
            return None
