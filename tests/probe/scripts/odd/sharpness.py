"""Sharpness-aware minimisation: two forwards and backwards a step, weights moved in between by a wrapping optimizer."""

import torch
from torch import nn


class Sharpness(torch.optim.Optimizer):
    def __init__(self, params, base, **settings):
        super().__init__(params, settings)
        self.base = base(self.param_groups, **settings)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def climb(self):
        self.moves = []
        for weight in self.param_groups[0]["params"]:
            self.moves.append(0.05 * weight.grad / (weight.grad.norm() + 1e-12))
            weight.add_(self.moves[-1])
        self.zero_grad()

    @torch.no_grad()
    def descend(self):
        for weight, move in zip(self.param_groups[0]["params"], self.moves, strict=True):
            weight.sub_(move)
        self.base.step()
        self.zero_grad()


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = Sharpness(net.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
for step in range(12):
    x, y = torch.randn(8, 3), torch.randint(0, 2, (8,))
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.climb()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.descend()
    print(step, repr(loss.item()))
