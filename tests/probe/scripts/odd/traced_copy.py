"""A loop that checks a traced copy of its model in each step."""

import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.branch, self.head = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 2)

    def forward(self, x):
        x = self.stem(x)
        return self.head(x + torch.tanh(self.branch(x)))


torch.manual_seed(0)
model = Net()
x, y = torch.randn(32, 8), torch.randint(0, 2, (32,))
traced = torch.jit.trace(model, x)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(4):
    optimizer.zero_grad()
    copied, output = traced(x), model(x)
    assert torch.allclose(copied, output, atol=1e-5)
    loss = nn.functional.cross_entropy(output, y)
    loss.backward()
    optimizer.step()
    print(repr(loss.item()))
