"""A healthy two-layer LSTM language model."""

import torch
import torch.nn.functional as F
from torch import nn


class LSTMLanguageModel(nn.Module):
    def __init__(self, vocab: int = 60, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.head(self.lstm(self.embed(ids))[0])
        result = {"logits": logits}
        if labels is not None:
            result["loss"] = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return result


def make_model() -> nn.Module:
    return LSTMLanguageModel()


def batch() -> dict[str, torch.Tensor]:
    ids = torch.randint(0, 60, (8, 24), generator=torch.Generator().manual_seed(1))
    return {"ids": ids[:, :-1], "labels": ids[:, 1:]}
