"""The factors on skip and branch, made from a wiring's words."""

from __future__ import annotations

import torch
from torch import nn

from gradscope.variants.depth_scales import layerscale_start
from gradscope.variants.stack import Stack
from gradscope.variants.wiring import Wiring

Factor = float | nn.Parameter | None
"""A constant, a learnt factor, or nothing at all."""


def make_skip_scale(wiring: Wiring, stack: Stack) -> Factor:
    """Make the factor on the skip; None leaves the skip untouched."""
    match wiring.skip_scale:
        case "deepnorm":
            return stack.deepnorm.alpha
        case "admin":
            return nn.Parameter(torch.ones(wiring.d_model))
        case _:
            return None


def make_branch_scale(wiring: Wiring, stack: Stack) -> Factor:
    """Make the factor on the branch; None leaves the branch untouched."""
    match wiring.branch_scale:
        case "rezero":
            return nn.Parameter(torch.tensor(float(wiring.branch_start)))
        case "fixup":
            return nn.Parameter(torch.ones(()))
        case "layerscale":
            return nn.Parameter(torch.full((wiring.d_model,), layerscale_start(stack.num_blocks)))
        case "inverse-sqrt":
            return float(stack.num_sublayers**-0.5)
        case "inverse":
            return 1 / stack.num_blocks
        case _:
            return None


def scaled(factor: Factor, x: torch.Tensor) -> torch.Tensor:
    """Multiply, where there is a factor."""
    return x if factor is None else factor * x
