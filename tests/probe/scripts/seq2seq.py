"""An encoder-decoder Transformer that learns to reverse sequences."""

import torch
import torch.nn.functional as F
from torch import nn


class Reverser(nn.Module):
    def __init__(self, width=16, vocab=11):
        super().__init__()
        self.emb, self.pos = nn.Embedding(vocab, width), nn.Parameter(torch.randn(8, width) * 0.1)
        self.body = nn.Transformer(width, 2, 2, 2, 32, dropout=0.1, batch_first=True)
        self.out = nn.Linear(width, vocab)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        source, target = (self.emb(ids) + self.pos[: ids.shape[1]] for ids in (source, target))
        return self.out(self.body(source, target, tgt_mask=mask))


def main():
    torch.manual_seed(0)
    model = Reverser()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(11):
        source = torch.randint(1, 11, (6, 7))
        target = torch.cat([torch.zeros(6, 1, dtype=torch.long), source.flip(1)], 1)
        loss = F.cross_entropy(model(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, repr(loss.item()))


main()
