"""A recurrent cell whose state shrinks at every step: what happened early leaves no gradient."""

import torch
import torch.nn.functional as F
from torch import nn


class Forgetful(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.cell = nn.RNNCell(3, width)
        nn.init.orthogonal_(self.cell.weight_hh, gain=0.4)
        self.head = nn.Linear(width, 2)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        state = sequence.new_zeros(len(sequence), self.cell.hidden_size)
        for step in sequence.unbind(1):
            state = self.cell(step, state)
        return self.head(state)


def model() -> nn.Module:
    return Forgetful()


def batch() -> tuple[torch.Tensor]:
    return (0.3 * torch.randn(16, 50, 3, generator=torch.Generator().manual_seed(1)),)


def loss(output: torch.Tensor, batch: tuple[torch.Tensor]) -> torch.Tensor:
    return F.cross_entropy(output, (batch[0][:, 0, 0] > 0).long())
