"""Residual networks for images, with every part that matters to gradient flow made optional.

Shapes: B batch, C channels, H x W pixels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from gradscope.variants.norms import NUM_GROUPS, through
from gradscope.variants.plan import require
from gradscope.variants.resnet_plan import FIRST_BOTTLENECK, STAGES, ResNetPlan

EXPANSION = 4
"""Output channels of a bottleneck per inner channel (He 2015, figure 5)."""


def make_image_norm(kind: str, channels: int) -> nn.Module | None:
    """Make the norm after one convolution; None for no norm."""
    match kind:
        case "batch":
            return nn.BatchNorm2d(channels)
        case "group":
            return nn.GroupNorm(NUM_GROUPS if channels % NUM_GROUPS == 0 else 1, channels)
        case _:
            return None


def convolution(inputs: int, outputs: int, size: int, stride: int, *, bias: bool) -> nn.Conv2d:
    """Make a convolution that keeps the picture's size up to its stride."""
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=bias)


class ResNetBlock(nn.Module):
    """relu(branch(x) + x), or in pre-activation order x + branch(x); the branch has two or three convolutions.

    Args:
        plan: The network's parts.
        inputs: Channels that arrive.
        inner: Channels inside the branch.
        stride: Of the block's one strided convolution.
    """

    def __init__(self, plan: ResNetPlan, inputs: int, inner: int, stride: int) -> None:
        super().__init__()
        bottleneck = plan.depth >= FIRST_BOTTLENECK
        outputs = inner * EXPANSION if bottleneck else inner
        widths = (inputs, inner, inner, outputs) if bottleneck else (inputs, inner, outputs)
        sizes = (1, 3, 1) if bottleneck else (3, 3)
        strides = (1, stride, 1) if bottleneck else (stride, 1)
        bias = plan.norm == "none"
        self.convs = nn.ModuleList(
            convolution(a, b, size, step, bias=bias)
            for a, b, size, step in zip(widths, widths[1:], sizes, strides, strict=False)
        )
        normed = widths[:-1] if plan.pre_activation else widths[1:]
        norms = [make_image_norm(plan.norm, width) for width in normed]
        self.norms = nn.ModuleList(norm for norm in norms if norm is not None)
        self.pre_activation, self.skips = plan.pre_activation, plan.shortcut
        changes_shape = plan.shortcut and (stride != 1 or inputs != outputs)
        self.shortcut = _projection(plan, inputs, outputs, stride) if changes_shape else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Transform and add."""
        if self.pre_activation:
            out = self._pre_activated(x)
            return out + through(self.shortcut, x) if self.skips else out
        out = self._activated(x)
        if self.skips:
            out += through(self.shortcut, x)
        return F.relu(out)

    def _activated(self, x: torch.Tensor) -> torch.Tensor:
        last = len(self.convs) - 1
        for i, conv in enumerate(self.convs):
            x = conv(x)
            x = self.norms[i](x) if self.norms else x
            x = F.relu(x) if i < last else x
        return x

    def _pre_activated(self, x: torch.Tensor) -> torch.Tensor:
        for i, conv in enumerate(self.convs):
            x = self.norms[i](x) if self.norms else x
            x = conv(F.relu(x))
        return x


def _projection(plan: ResNetPlan, inputs: int, outputs: int, stride: int) -> nn.Sequential:
    norm = None if plan.pre_activation else make_image_norm(plan.norm, outputs)
    conv = convolution(inputs, outputs, 1, stride, bias=norm is None)
    return nn.Sequential(conv, *([] if norm is None else [norm]))


class ResNet(nn.Module):
    """Images (B x 3 x H x W) to logits (B x classes)."""

    def __init__(self, plan: ResNetPlan) -> None:
        super().__init__()
        require(plan.depth in STAGES, f"a ResNet has no depth {plan.depth}.", f"It is one of {_listed(STAGES)}.")
        first_size, first_stride = (7, 2) if plan.stem == "imagenet" else (3, 1)
        self.stem = convolution(3, plan.width, first_size, first_stride, bias=plan.norm == "none")
        self.stem_norm = None if plan.pre_activation else make_image_norm(plan.norm, plan.width)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1) if plan.stem == "imagenet" else None
        self.stages = nn.ModuleList()
        channels = plan.width
        for number, num_blocks in enumerate(STAGES[plan.depth]):
            stage = nn.Sequential()
            inner = plan.width * 2**number
            for block in range(num_blocks):
                stage.append(ResNetBlock(plan, channels, inner, 2 if number and not block else 1))
                channels = inner * (EXPANSION if plan.depth >= FIRST_BOTTLENECK else 1)
            self.stages.append(stage)
        self.norm = make_image_norm(plan.norm, channels) if plan.pre_activation else None
        self.pre_activation = plan.pre_activation
        self.head = nn.Linear(channels, plan.classes)
        initialise_resnet(self, plan)

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """Classify."""
        x = through(self.stem_norm, self.stem(x_BCHW))
        x = through(self.pool, x if self.pre_activation else F.relu(x))
        for stage in self.stages:
            x = stage(x)
        if self.pre_activation:
            x = F.relu(through(self.norm, x))
        logits: torch.Tensor = self.head(x.mean(dim=(-2, -1)))
        return logits


def initialise_resnet(model: nn.Module, plan: ResNetPlan) -> None:
    """Draw the convolutions by the plan's scheme; start the last norm weight of each block at 0 where asked."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and plan.init != "pytorch":
            if plan.init == "he":
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            else:
                nn.init.xavier_normal_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    if plan.zero_gamma:
        for module in model.modules():
            if isinstance(module, ResNetBlock):
                _silence(module, plan)


def _silence(block: ResNetBlock, plan: ResNetPlan) -> None:
    last = block.convs[-1] if plan.norm == "none" or plan.pre_activation else block.norms[-1]
    for parameter in last.parameters():
        nn.init.zeros_(parameter)


def _listed(numbers: dict[int, tuple[int, ...]]) -> str:
    return ", ".join(str(number) for number in numbers)
