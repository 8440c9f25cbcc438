"""Gradient descent written out, as in a first lesson."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 1)
for step in range(12):
    x = torch.randn(10, 3)
    loss = (net(x) - 2 * x[:, :1]).square().mean()
    loss.backward()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.sub_(0.1 * parameter.grad)
            parameter.grad = None
    print(step, repr(loss.item()))
