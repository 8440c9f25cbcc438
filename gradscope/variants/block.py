"""The Transformer block, in each arrangement of its sublayers."""

from __future__ import annotations

import torch
from torch import nn

from gradscope.variants.attention import Attention, FirstValues
from gradscope.variants.feedforward import make_feedforward
from gradscope.variants.norms import make_norm, through
from gradscope.variants.stack import Stack
from gradscope.variants.sublayer import Sublayer
from gradscope.variants.wiring import Wiring


class Block(nn.Module):
    """Attention, where there is a memory cross-attention, then feed-forward: one sublayer each."""

    def __init__(self, wiring: Wiring, stack: Stack, block: int, first_values: FirstValues | None) -> None:
        super().__init__()
        attention = Attention(wiring, causal=stack.causal, first_values=first_values)
        after_attention = wiring.inner_norm == "normformer"
        self.attention = Sublayer(wiring, stack, block, attention, norm_branch=after_attention)
        self.cross = Sublayer(wiring, stack, block, Attention(wiring, causal=False)) if stack.cross else None
        self.mlp = Sublayer(wiring, stack, block, make_feedforward(wiring))

    def forward(self, x: torch.Tensor, *memory: torch.Tensor) -> torch.Tensor:
        """Run the sublayers in turn."""
        x = self.attention(x)
        if self.cross is not None:
            x = self.cross(x, *memory)
        x = self.mlp(x)
        return x


class ParallelBlock(nn.Module):
    """x + attention(norm(x)) + mlp(norm(x)), one norm for both (GPT-J, PaLM)."""

    def __init__(self, wiring: Wiring, stack: Stack, block: int, first_values: FirstValues | None) -> None:
        super().__init__()
        self.norm = make_norm(wiring.norm, wiring.d_model, wiring.eps)
        self.attention = Attention(wiring, causal=stack.causal, first_values=first_values)
        self.mlp = make_feedforward(wiring)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add both branches to the stream."""
        normed = through(self.norm, x)
        added: torch.Tensor = x + self.attention(normed) + self.mlp(normed)
        return added


class BottomToTopBlock(nn.Module):
    """Post-LN whose last norm also sees the block's input (Takase 2022, B2T)."""

    def __init__(self, wiring: Wiring, stack: Stack, block: int, first_values: FirstValues | None) -> None:
        super().__init__()
        self.attention = Attention(wiring, causal=stack.causal, first_values=first_values)
        self.mlp = make_feedforward(wiring)
        self.norm1 = make_norm(wiring.norm, wiring.d_model, wiring.eps)
        self.norm2 = make_norm(wiring.norm, wiring.d_model, wiring.eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run both sublayers, the input carried round them to the top."""
        a = through(self.norm1, x + self.attention(x))
        return through(self.norm2, x + (a + self.mlp(a)))
