"""Gradients accumulated over four micro-batches before each optimizer step."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for micro in range(44):
    x = torch.randn(4, 6)
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    (loss / 4).backward()
    print(micro, repr(loss.item()))
    if (micro + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
