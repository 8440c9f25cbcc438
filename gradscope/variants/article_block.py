"""The residual block as tutorials print it (no norm in the branch), stacked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn

INITS = {"pytorch": "what nn.Conv2d does", "he": "N(0, 2/fan_out), biases 0", "xavier": "Xavier normal, biases 0"}


@dataclass(frozen=True)
class BlockStackPlan:
    """A stack of printed blocks.

    Attributes:
        layers: Blocks.
        width: Channels.
        image: Height and width of the task's images.
        classes: Classes of the task.
        batch: Images per batch of the task.
        init: How convolutions are drawn.
    """

    choices: ClassVar[dict[str, dict[str, str]]] = {"init": INITS}

    layers: int = 32
    width: int = 16
    image: int = 8
    classes: int = 10
    batch: int = 32
    init: str = "he"


class ResidualBlock(nn.Module):
    """relu(conv2(relu(conv1(x))) + shortcut(x)), the sum taken in place; BatchNorm on the projection shortcut only."""

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, kernel_size=3, stride=stride, padding=1)
        self.conv2 = nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, kernel_size=1, stride=stride), nn.BatchNorm2d(out_channels)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Transform, add, rectify."""
        out = F.relu(self.conv1(x))
        out = self.conv2(out)
        out += self.shortcut(x)
        return F.relu(out)


class BlockStack(nn.Module):
    """Images (B x 3 x H x W) to logits (B x classes) through a stack of equal blocks."""

    def __init__(self, plan: BlockStackPlan) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, plan.width, kernel_size=3, padding=1)
        self.blocks = nn.Sequential(*(ResidualBlock(plan.width, plan.width) for _ in range(plan.layers)))
        self.head = nn.Linear(plan.width, plan.classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d) and plan.init != "pytorch":
                _draw(module, plan.init)

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """Classify."""
        logits: torch.Tensor = self.head(self.blocks(self.embed(x_BCHW)).mean(dim=(-2, -1)))
        return logits


def _draw(conv: nn.Conv2d, init: str) -> None:
    if init == "he":
        nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    else:
        nn.init.xavier_normal_(conv.weight)
    if conv.bias is not None:
        nn.init.zeros_(conv.bias)
