"""One model, two optimizers that step together: one for the embedding, one for the rest."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.body = nn.Embedding(30, 12), nn.Sequential(nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 5))

    def forward(self, ids):
        return self.body(self.emb(ids))


tagger = Tagger()
optimizers = [
    torch.optim.SGD(tagger.emb.parameters(), lr=0.5),
    torch.optim.AdamW(tagger.body.parameters(), lr=1e-3),
]
for step in range(12):
    ids = torch.randint(0, 30, (8, 6))
    loss = F.cross_entropy(tagger(ids).flatten(0, 1), (ids % 5).flatten())
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    print(step, repr(loss.item()))
