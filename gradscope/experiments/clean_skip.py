"""What a block does to the stream when its branch adds nothing: nothing at all, where the skip is clean."""

from __future__ import annotations

import torch
from torch import nn

from gradscope.variants import build

CHANNELS = 8


@torch.no_grad()
def skip_changes() -> dict[str, float]:
    """Return the relative change of a random stream by a residual network's block, first and second version."""
    torch.manual_seed(0)
    x = torch.randn(4, CHANNELS, 6, 6)
    found = {}
    for words, pre_activation in (
        ("residual network of 2015, ReLU after the sum", False),
        ("residual network of 2016, pre-activation", True),
    ):
        model = build("resnet18", width=CHANNELS, zero_gamma=True, pre_activation=pre_activation)
        found[words] = _change(model.get_submodule("stages.0.0"), x)
    return found


def _change(block: nn.Module, x: torch.Tensor) -> float:
    return float((block(x) - x).norm() / x.norm())
