"""A plain training script, to be watched as it stands: gradscope run examples/train_charlm.py --steps 30."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

TEXT = "the gradient flows back through every layer of the net, and the residual stream carries it home. " * 20


class CharLM(nn.Module):
    def __init__(self, vocab: int, width: int = 64, layers: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.blocks(self.embed(ids), mask=mask, is_causal=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    letters = sorted(set(TEXT))
    data = torch.tensor([letters.index(letter) for letter in TEXT])
    net = CharLM(len(letters))
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for step in range(arguments.steps):
        start = torch.randint(0, len(data) - 33, (16,))
        window = torch.stack([data[i : i + 33] for i in start])
        optimizer.zero_grad()
        loss = F.cross_entropy(net(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        print(f"step {step}: loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
