"""Gradients returned by `autograd.grad`, weights changed by hand."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
weights = list(net.parameters())
for step in range(12):
    loss = net(torch.randn(4, 3)).square().mean()
    gradients = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.sub_(0.1 * gradient)
    print(step, repr(loss.item()), repr(torch.stack([g.norm() for g in gradients]).norm().item()))
