"""Attention over a fully padded row: the loss is finite, yet some gradients are NaN."""

import torch
import torch.nn.functional as F
from torch import nn


class MaskedAttention(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        scores = self.q(x) @ self.k(x).transpose(-1, -2) / x.shape[-1] ** 0.5
        weights = scores.masked_fill(padding[:, None, :], float("-inf")).softmax(-1)
        return (weights @ self.v(x)).masked_fill(padding[..., None], 0.0)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(50, 32, padding_idx=0), nn.LayerNorm(32)
        self.attention, self.head = MaskedAttention(), nn.Linear(32, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        x = x + self.attention(self.norm(x), ids == 0)
        return self.head(x[:, 0])


def model() -> nn.Module:
    return Classifier()


def batch() -> tuple[torch.Tensor]:
    ids = torch.randint(1, 50, (8, 12), generator=torch.Generator().manual_seed(1))
    ids[3] = 0  # an empty sentence
    return (ids,)


def loss(output: torch.Tensor, batch: tuple[torch.Tensor]) -> torch.Tensor:
    kept = batch[0][:, 0] != 0
    return F.cross_entropy(output[kept], (batch[0][:, 0] % 4)[kept])
