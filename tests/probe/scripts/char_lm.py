"""A character language model, recurrent, with the hidden state carried from batch to batch."""

import torch
from torch import nn

torch.manual_seed(0)
text = "the quick brown fox jumps over the lazy dog " * 20
vocab = sorted(set(text))
data = torch.tensor([vocab.index(c) for c in text])


class CharLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(len(vocab), 16)
        self.rnn = nn.LSTM(16, 32, num_layers=2, batch_first=True, dropout=0.1)
        self.out = nn.Linear(32, len(vocab))

    def forward(self, ids, state=None):
        h, state = self.rnn(self.emb(ids), state)
        return self.out(h), state


lm = CharLM()
optimizer = torch.optim.Adam(lm.parameters(), lr=3e-3)
criterion = nn.CrossEntropyLoss()
state = None
for step in range(12):
    at = step * 33
    ids = data[at : at + 4 * 33].view(4, 33)
    logits, state = lm(ids[:, :-1], state)
    state = tuple(s.detach() for s in state)
    loss = criterion(logits.flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
