"""nGPT: every vector and every weight row on the unit sphere (Loshchilov 2024, arXiv:2410.01131).

Shapes: B batch, T tokens, D width, H heads, E = D / H.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from gradscope.variants.rotary import Rotary
from gradscope.variants.wiring import Wiring

STEP = 0.05
"""Initial step toward the branch's direction, alpha (section 2.6, "of the order of 1/layers")."""


class UnitLinear(nn.Module):
    """A linear map without bias whose vectors along the stream's width have length 1.

    Args:
        inputs: Features in.
        outputs: Features out.
        dim: The weight's dimension that is the stream's: 1 when it reads the stream, 0 when it writes to it.
    """

    def __init__(self, inputs: int, outputs: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / math.sqrt(inputs))
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map with the normalised weight."""
        return F.linear(x, F.normalize(self.weight, dim=self.dim))


class LearntScale(nn.Module):
    """A learnt vector of factors that starts at `start`, stored as `stored`: that sets how fast Adam moves it."""

    def __init__(self, size: int, start: float, stored: float) -> None:
        super().__init__()
        self.stored = nn.Parameter(torch.full((size,), stored))
        self.ratio = start / stored

    def forward(self) -> torch.Tensor:
        """Return the factors."""
        return self.stored * self.ratio


class SphereAttention(nn.Module):
    """Attention with unit queries and keys, a learnt scale on both, and logits times sqrt(E)."""

    def __init__(self, wiring: Wiring) -> None:
        super().__init__()
        width, self.heads = wiring.d_model, wiring.heads
        self.q, self.k, self.v = (UnitLinear(width, width, 1) for _ in range(3))
        self.out = UnitLinear(width, width, 0)
        self.qk_scale = LearntScale(width, 1.0, width**-0.5)
        self.rotary = Rotary(width // wiring.heads, wiring.tokens)
        self.causal = wiring.structure == "decoder"

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Attend and project back."""
        scale = self.qk_scale().view(self.heads, 1, -1)
        q = F.normalize(self.rotary(self._split(self.q(x_BTD))), dim=-1) * scale
        k = F.normalize(self.rotary(self._split(self.k(x_BTD))), dim=-1) * scale
        v = self._split(self.v(x_BTD))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, scale=math.sqrt(q.shape[-1]))
        projected: torch.Tensor = self.out(a.transpose(1, 2).flatten(-2))
        return projected

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(*x.shape[:-1], self.heads, -1).transpose(1, 2)


class SphereFeedForward(nn.Module):
    """SwiGLU with scales that bring unit-vector products back to unit size."""

    def __init__(self, wiring: Wiring) -> None:
        super().__init__()
        width, hidden = wiring.d_model, wiring.hidden_width
        self.fc1, self.gate = UnitLinear(width, hidden, 1), UnitLinear(width, hidden, 1)
        self.fc2 = UnitLinear(hidden, width, 0)
        self.up_scale, self.gate_scale = LearntScale(hidden, 1.0, 1.0), LearntScale(hidden, 1.0, 1.0)
        self.width = width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Widen, gate, narrow."""
        up = self.fc1(x) * self.up_scale()
        gate = self.gate(x) * self.gate_scale() * math.sqrt(self.width)
        narrowed: torch.Tensor = self.fc2(F.silu(gate) * up)
        return narrowed


class SphereBlock(nn.Module):
    """h = norm(h + a (norm(f(h)) - h)) for attention, then for the feed-forward."""

    def __init__(self, wiring: Wiring) -> None:
        super().__init__()
        self.attention, self.mlp = SphereAttention(wiring), SphereFeedForward(wiring)
        width = wiring.d_model
        self.attention_step = LearntScale(width, STEP, width**-0.5)
        self.mlp_step = LearntScale(width, STEP, width**-0.5)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """Take both steps on the sphere."""
        h = F.normalize(torch.lerp(h, F.normalize(self.attention(h), dim=-1), self.attention_step()), dim=-1)
        return F.normalize(torch.lerp(h, F.normalize(self.mlp(h), dim=-1), self.mlp_step()), dim=-1)


class UnitEmbedding(nn.Module):
    """Token ids to unit vectors."""

    def __init__(self, wiring: Wiring) -> None:
        super().__init__()
        self.tokens = nn.Embedding(wiring.vocab, wiring.d_model)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Look up and normalise."""
        return F.normalize(self.tokens(ids), dim=-1)


class SphereTransformer(nn.Module):
    """Token ids (B x T) to logits (B x T x vocab), on the unit sphere throughout."""

    def __init__(self, wiring: Wiring) -> None:
        super().__init__()
        self.num_layers = wiring.layers
        self.embed = UnitEmbedding(wiring)
        self.blocks = nn.ModuleList(SphereBlock(wiring) for _ in range(wiring.layers))
        self.head = UnitLinear(wiring.d_model, wiring.vocab, 1)
        self.logit_scale = LearntScale(wiring.vocab, 1.0, wiring.d_model**-0.5)

    def forward(self, ids_BT: torch.Tensor) -> torch.Tensor:
        """Predict a token at every position."""
        h = self.embed(ids_BT)
        for block in self.blocks:
            h = block(h)
        logits: torch.Tensor = self.head(h) * self.logit_scale()
        return logits
