"""A healthy residual network for 32 x 32 images, with projection shortcuts and in-place additions."""

from itertools import pairwise

import torch
from torch import nn


def conv(inputs: int, outputs: int, stride: int = 1, size: int = 3) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = conv(inputs, outputs, stride), conv(outputs, outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = conv(inputs, outputs, stride, 1) if stride != 1 or inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.conv2(self.relu(self.conv1(x)))
        out += self.shortcut(x)
        return self.relu(out)


class ResNet(nn.Module):
    """ResNet-20 of the CIFAR family (He et al. 2015, section 4.2)."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
        self.stem = nn.Sequential(conv(3, 16), nn.ReLU(inplace=True))
        self.blocks = nn.Sequential(
            *(BasicBlock(a, b, 2 if b > a else 1) for a, b in pairwise(widths))
        )
        self.head = nn.Linear(64, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


def get_batch() -> torch.Tensor:
    return torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(1))
