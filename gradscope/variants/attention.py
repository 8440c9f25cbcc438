"""Multi-head attention with the parts that variants add to it.

Shapes: B batch, T tokens, S tokens attended to, D width, H heads, E = D / H.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from gradscope.variants.norms import make_norm, through
from gradscope.variants.rotary import Rotary
from gradscope.variants.wiring import Wiring


class Attention(nn.Module):
    """Self-attention, or cross-attention when `forward` is given a memory.

    Args:
        wiring: The variant's parts.
        causal: A token sees itself and those before it.
        first_values: Where the first block leaves its values for the others to reuse (value residual), or None.
    """

    def __init__(self, wiring: Wiring, *, causal: bool, first_values: FirstValues | None = None) -> None:
        super().__init__()
        width, head_width = wiring.d_model, wiring.d_model // wiring.heads
        self.heads, self.kv_heads, self.head_width = wiring.heads, wiring.kv_heads or wiring.heads, head_width
        self.causal = causal
        self.q = nn.Linear(width, width, bias=wiring.bias)
        self.k = nn.Linear(width, self.kv_heads * head_width, bias=wiring.bias)
        self.v = nn.Linear(width, self.kv_heads * head_width, bias=wiring.bias)
        self.out = nn.Linear(width, width, bias=wiring.bias)
        self.q_norm = nn.RMSNorm(head_width, eps=wiring.eps) if wiring.qk_norm else None
        self.k_norm = nn.RMSNorm(head_width, eps=wiring.eps) if wiring.qk_norm else None
        self.rotary = Rotary(head_width, wiring.tokens) if wiring.position == "rotary" else None
        self.norm = make_norm(wiring.norm, width, wiring.eps) if wiring.inner_norm == "sub-ln" else None
        self.head_scale = nn.Parameter(torch.ones(wiring.heads, 1, 1)) if wiring.inner_norm == "normformer" else None
        self._first_values = first_values

    def forward(self, x_BTD: torch.Tensor, memory_BSD: torch.Tensor | None = None) -> torch.Tensor:
        """Attend and project back to the stream's width."""
        source_BSD = x_BTD if memory_BSD is None else memory_BSD
        q_BHTE = through(self.rotary, through(self.q_norm, self._split(self.q(x_BTD))))
        k_BHSE = through(self.rotary, through(self.k_norm, self._split(self.k(source_BSD))))
        v_BHSE = self._split(self.v(source_BSD))
        if self._first_values is not None:
            v_BHSE = self._first_values.blend(v_BHSE)
        a_BHTE = F.scaled_dot_product_attention(
            q_BHTE, k_BHSE, v_BHSE, is_causal=self.causal and memory_BSD is None, enable_gqa=self.kv_heads < self.heads
        )
        if self.head_scale is not None:
            a_BHTE = a_BHTE * self.head_scale
        projected: torch.Tensor = self.out(through(self.norm, a_BHTE.transpose(1, 2).flatten(-2)))
        return projected

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(*x.shape[:-1], -1, self.head_width).transpose(1, 2)


class FirstValues:
    """The first block's values, shared with every later block within one forward (Zhou 2024, value residual)."""

    def __init__(self) -> None:
        self._values: torch.Tensor | None = None

    def forget(self) -> None:
        """End a forward."""
        self._values = None

    def blend(self, values: torch.Tensor) -> torch.Tensor:
        """Average with the first block's values; the first block's own pass through."""
        if self._values is None:
            self._values = values
            return values
        return (values + self._values) / 2
