"""Rotary positions (Su 2021, RoPE)."""

from __future__ import annotations

import torch
from torch import nn

BASE = 10_000.0
"""Base of the wavelengths (Su 2021, section 3.2.2)."""


class Rotary(nn.Module):
    """Rotate pairs of features of B x H x T x E by an angle that grows with the position."""

    cos: torch.Tensor
    sin: torch.Tensor

    def __init__(self, head_width: int, tokens: int) -> None:
        super().__init__()
        frequency = BASE ** (-torch.arange(0, head_width, 2) / head_width)
        angle = torch.outer(torch.arange(tokens), frequency)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rotate queries or keys."""
        cos, sin = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)
