"""A ten-layer Transformer without skip connections: its gradient norms look fine, and it cannot learn."""

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, TOKENS, WIDTH = 32, 16, 64


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm1(x)
        x = self.attn(h, h, h, need_weights=False)[0]  # no "x +" here ...
        return self.ffn(self.norm2(x))  # ... nor here


class Net(nn.Module):
    def __init__(self, layers: int = 10) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(VOCAB, WIDTH), nn.Parameter(torch.randn(TOKENS, WIDTH))
        self.layers = nn.Sequential(*(Layer() for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layers(self.embed(ids) + self.position)))


def model(layers: int = 10) -> nn.Module:
    return Net(layers)


def batch() -> tuple[torch.Tensor]:
    return (torch.randint(0, VOCAB, (32, TOKENS), generator=torch.Generator().manual_seed(1)),)


def loss(output: torch.Tensor, batch: tuple[torch.Tensor]) -> torch.Tensor:
    return F.cross_entropy(output.flatten(0, 1), batch[0].roll(1, dims=1).flatten())
