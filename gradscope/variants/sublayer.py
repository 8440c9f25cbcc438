"""One residual sublayer: norms, branch, skip, and how they join."""

from __future__ import annotations

import torch
from torch import nn

from gradscope.variants.depth_scales import layernorm_scaling
from gradscope.variants.norms import make_norm, through
from gradscope.variants.scales import make_branch_scale, make_skip_scale, scaled
from gradscope.variants.stack import Stack
from gradscope.variants.wiring import Wiring


class Sublayer(nn.Module):
    """norm_after(skip_scale * x + branch_scale * norm_branch(branch(norm_before(x)))), each part optional.

    Args:
        wiring: The variant's parts.
        stack: The stack it belongs to.
        block: Number of its block, from 1.
        branch: Attention or feed-forward.
        norm_branch: Whether the branch ends in a norm whatever the placement says (NormFormer's attention).
    """

    def __init__(
        self, wiring: Wiring, stack: Stack, block: int, branch: nn.Module, *, norm_branch: bool = False
    ) -> None:
        super().__init__()
        placement = wiring.placement_in(block)

        def norm(wanted: bool) -> nn.Module | None:
            return make_norm(wiring.norm, wiring.d_model, wiring.eps) if wanted else None

        self.norm_before = norm(placement in ("pre", "sandwich"))
        self.branch = branch
        self.norm_branch = norm(norm_branch or placement in ("sandwich", "output"))
        self.dropout = nn.Dropout(wiring.dropout) if wiring.dropout else None
        self.norm_after = norm(placement == "post")
        self.norm_scale = layernorm_scaling(block) if wiring.norm_scale == "inverse-sqrt-block" else None
        self.skip = wiring.skip
        self.skip_scale = make_skip_scale(wiring, stack)
        self.branch_scale = make_branch_scale(wiring, stack)
        self.gate = nn.Linear(wiring.d_model, wiring.d_model) if wiring.skip == "highway" else None
        fixup = wiring.branch_scale == "fixup"
        self.bias_before = nn.Parameter(torch.zeros(())) if fixup else None
        self.bias_after = nn.Parameter(torch.zeros(())) if fixup else None

    def forward(self, x: torch.Tensor, *memory: torch.Tensor) -> torch.Tensor:
        """Add the branch to the stream."""
        return through(self.norm_after, self.join(x, self.compute_branch(x, *memory)))

    def compute_branch(self, x: torch.Tensor, *memory: torch.Tensor) -> torch.Tensor:
        """Run the branch on the stream, its norms included."""
        entered = scaled(self.norm_scale, through(self.norm_before, x))
        if self.bias_before is not None:
            entered = entered + self.bias_before
        f = through(self.dropout, through(self.norm_branch, self.branch(entered, *memory)))
        f = scaled(self.branch_scale, f)
        return f if self.bias_after is None else f + self.bias_after

    def join(self, x: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        """Put skip and branch together."""
        if self.gate is not None:
            t = torch.sigmoid(self.gate(x))
            return (1 - t) * x + t * f
        if self.skip == "none":
            return f
        return scaled(self.skip_scale, x) + f
