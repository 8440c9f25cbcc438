"""A deep Transformer encoder in the 2017 wiring: the norm sits after the addition. Tokens grow alike with depth."""

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, TOKENS, WIDTH, LAYERS = 50, 16, 64, 24


class PostLN(nn.Module):
    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(VOCAB, WIDTH), nn.Parameter(0.1 * torch.randn(TOKENS, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        for parameter in self.encoder.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_normal_(parameter)
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(ids) + self.position))


def model(layers: int = LAYERS) -> nn.Module:
    return PostLN(layers)


def batch() -> tuple[torch.Tensor]:
    return (torch.randint(0, VOCAB, (8, TOKENS), generator=torch.Generator().manual_seed(1)),)


def loss(output: torch.Tensor, batch: tuple[torch.Tensor]) -> torch.Tensor:
    return F.cross_entropy(output.flatten(0, 1), batch[0].roll(1, dims=1).flatten())
