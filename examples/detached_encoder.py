"""A forgotten .detach(): the decoder trains, the encoder never will."""

import torch
import torch.nn.functional as F
from torch import nn


class AutoEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 8))
        self.decoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 32))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        code = self.encoder(features).detach()  # left over from debugging
        return self.decoder(code)


def model() -> nn.Module:
    return AutoEncoder()


def batch() -> tuple[torch.Tensor]:
    return (torch.randn(16, 32, generator=torch.Generator().manual_seed(1)),)


def loss(output: torch.Tensor, batch: tuple[torch.Tensor]) -> torch.Tensor:
    return F.mse_loss(output, batch[0])
