"""The named parts of a residual network for images, torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

STAGES: dict[int, tuple[int, ...]] = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
"""Blocks per stage (He 2015, table 1)."""

FIRST_BOTTLENECK = 50
"""From this depth on, blocks are bottlenecks of three convolutions (He 2015, table 1)."""


@dataclass(frozen=True)
class ResNetPlan:
    """Everything that decides a residual network.

    Attributes:
        depth: 18, 34, 50, 101 or 152 weight layers.
        width: Channels of the first stage; the paper's networks have 64.
        shortcut: Whether blocks have their skip.
        norm: Batch, group or no normalisation.
        zero_gamma: Start the last norm weight of each block at 0 (Goyal 2017); without a norm, the last convolution.
        pre_activation: norm-ReLU-conv order with a clean skip (He 2016).
        stem: imagenet (7x7, stride 2, max pool) or cifar (3x3).
        image: Height and width of the task's images.
        classes: Classes of the task.
        batch: Images per batch of the task.
        init: he (normal, fan out), pytorch or xavier.
    """

    choices: ClassVar[dict[str, dict[str, str]]] = {
        "norm": {"batch": "BatchNorm", "group": "GroupNorm", "none": "no norm"},
        "stem": {"imagenet": "7x7 convolution of stride 2, max pool", "cifar": "3x3 convolution"},
        "init": {
            "he": "N(0, 2/fan_out), as the paper's code",
            "pytorch": "what nn.Conv2d does",
            "xavier": "Xavier normal",
        },
    }

    depth: int = 18
    width: int = 16
    shortcut: bool = True
    norm: str = "batch"
    zero_gamma: bool = False
    pre_activation: bool = False
    stem: str = "imagenet"
    image: int = 32
    classes: int = 10
    batch: int = 32
    init: str = "he"
