"""A healthy small U-Net: its skips are concatenations, which are reported but are no additions."""

import torch
import torch.nn.functional as F
from torch import nn


def double_conv(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down1, self.down2 = double_conv(3, width), double_conv(width, 2 * width)
        self.bottom = double_conv(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.merge2 = double_conv(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.merge1 = double_conv(2 * width, width)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        a = self.down1(images)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        b = self.merge2(torch.cat([b, self.up2(c)], dim=1))
        return self.head(self.merge1(torch.cat([a, self.up1(b)], dim=1)))
