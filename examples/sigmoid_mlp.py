"""Sixteen sigmoid layers in PyTorch's default initialisation: almost nothing reaches the first layer."""

import torch
from torch import nn

torch.manual_seed(0)
layers: list[nn.Module] = []
for width_in in [20] + 15 * [64]:
    layers += [nn.Linear(width_in, 64), nn.Sigmoid()]
model = nn.Sequential(*layers, nn.Linear(64, 10))

loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(torch.randn(64, 20), torch.randint(0, 10, (64,))), batch_size=32
)
criterion = nn.CrossEntropyLoss()
