"""A 50-layer convolutional net with BatchNorm but without shortcuts: gradients explode toward the input."""

import torch
from torch import nn


class PlainBlock(nn.Module):
    def __init__(self, channels: int, shortcut: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.shortcut = shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.shortcut:
            out += x
        return torch.relu(out)


class PlainNet(nn.Module):
    def __init__(self, blocks: int = 24, channels: int = 16, shortcut: bool = False) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(inplace=True))
        self.blocks = nn.Sequential(*(PlainBlock(channels, shortcut) for _ in range(blocks)))
        self.head = nn.Linear(channels, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


def model(blocks: int = 24, shortcut: bool = False) -> nn.Module:
    return PlainNet(blocks, shortcut=shortcut)


example_inputs = torch.randn(16, 3, 16, 16, generator=torch.Generator().manual_seed(1))
criterion = nn.CrossEntropyLoss()
