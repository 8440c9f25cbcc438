"""Low-rank adapters with both factors at zero: every gradient is exactly zero for ever."""

import torch
import torch.nn.functional as F
from torch import nn


class LoRALinear(nn.Module):
    def __init__(self, inputs: int, outputs: int, rank: int = 4, zero_down: bool = True) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down = nn.Parameter(torch.zeros(rank, inputs) if zero_down else 0.1 * torch.randn(rank, inputs))
        self.up = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + x @ self.down.T @ self.up.T


def model(zero_down: bool = True) -> nn.Module:
    return nn.Sequential(
        LoRALinear(16, 32, zero_down=zero_down), nn.GELU(), LoRALinear(32, 32, zero_down=zero_down), nn.GELU(),
        LoRALinear(32, 4, zero_down=zero_down),
    )


def batch() -> tuple[torch.Tensor]:
    return (torch.randn(32, 16, generator=torch.Generator().manual_seed(1)),)


def loss(output: torch.Tensor, batch: tuple[torch.Tensor]) -> torch.Tensor:
    return F.cross_entropy(output, torch.arange(32) % 4)
