"""Hyper-connections: several streams that a branch reads from and writes to, and that mix on the way.

Shapes: B batch, T tokens, N streams before a step, M the same streams after it, D width. Weights that do not depend
on the token lack B and T.
"""

from __future__ import annotations

import torch
from torch import nn

from gradscope.variants.attention import FirstValues
from gradscope.variants.block import Block
from gradscope.variants.stack import Stack
from gradscope.variants.sublayer import Sublayer
from gradscope.variants.wiring import Wiring

SINKHORN_ROUNDS = 20
"""Alternations of row and column scaling (Xie 2025, mHC, section 4.2)."""

CARRY_LOGIT = 8.0
"""Diagonal logit of mHC's mixing at initialisation: e^-8 off the diagonal, so that each stream carries on by itself."""

READ_LOGIT = 1.0
"""mHC's reading at initialisation: sigmoid(1) of one stream, sigmoid(-1) of the others. Ours: the paper gives none."""

DYNAMIC_START = 0.01
"""Initial factor on what a token changes in the weights, whose maps start at 0 (Zhu 2024, appendix J; Xie 2025)."""

Weights = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Reading (N), writing (M) and mixing (N x M, from stream n to stream m) weights."""


class StreamOffsets(nn.Module):
    """What a token's streams add to the weights, each stream to its own: s tanh(LN(h) W) (Zhu 2024, eq. 11-13)."""

    def __init__(self, width: int, num_streams: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.read_and_mix = nn.Parameter(torch.zeros(width, 1 + num_streams))
        self.write = nn.Parameter(torch.zeros(width))
        self.read_and_mix_scale = nn.Parameter(torch.tensor(DYNAMIC_START))
        self.write_scale = nn.Parameter(torch.tensor(DYNAMIC_START))

    def forward(self, streams_BTND: torch.Tensor) -> Weights:
        """Return what to add to reading (B T N), writing (B T M) and mixing (B T N M)."""
        normed = self.norm(streams_BTND)
        read_and_mix = self.read_and_mix_scale * torch.tanh(normed @ self.read_and_mix)
        return read_and_mix[..., 0], self.write_scale * torch.tanh(normed @ self.write), read_and_mix[..., 1:]


class ManifoldOffsets(nn.Module):
    """The same from all streams at once, before they are projected: a RMSNorm(vec H) phi (Xie 2025, mHC, eq. 7)."""

    def __init__(self, width: int, num_streams: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(num_streams * width)
        self.read = nn.Parameter(torch.zeros(num_streams * width, num_streams))
        self.write = nn.Parameter(torch.zeros(num_streams * width, num_streams))
        self.mix = nn.Parameter(torch.zeros(num_streams * width, num_streams**2))
        self.scales = nn.Parameter(torch.full((3,), DYNAMIC_START))

    def forward(self, streams_BTND: torch.Tensor) -> Weights:
        """Return what to add to the logits of reading (B T N), writing (B T M) and mixing (B T N M)."""
        normed = self.norm(streams_BTND.flatten(-2))
        read, write, mix = (
            scale * (normed @ phi) for scale, phi in zip(self.scales, (self.read, self.write, self.mix), strict=True)
        )
        return read, write, mix.unflatten(-1, (streams_BTND.shape[-2], -1))


class HyperSublayer(nn.Module):
    """mix(H) + write * f(read . H): N streams that one branch reads from and writes to (Zhu 2024).

    Starts equal to Pre-LN: the branch reads one stream (the next one at the next sublayer) and writes to all.
    """

    offsets: StreamOffsets | ManifoldOffsets | None

    def __init__(self, sublayer: Sublayer, wiring: Wiring, number: int) -> None:
        super().__init__()
        self.sublayer = sublayer
        reads = torch.zeros(wiring.streams)
        reads[number % wiring.streams] = 1.0
        self.read = nn.Parameter(reads)
        self.write = nn.Parameter(torch.ones(wiring.streams))
        self.mix = nn.Parameter(torch.eye(wiring.streams))
        self.offsets = StreamOffsets(wiring.d_model, wiring.streams) if wiring.dynamic_streams else None

    def weights(self, streams_BTND: torch.Tensor) -> Weights:
        """Return the weights; of every token its own where they are dynamic."""
        if self.offsets is None:
            return self.read, self.write, self.mix
        read, write, mix = self.offsets(streams_BTND)
        return self.read + read, self.write + write, self.mix + mix

    def forward(self, streams_BTND: torch.Tensor) -> torch.Tensor:
        """Read, compute, mix, write."""
        read, write, mix = self.weights(streams_BTND)
        f_BTD = self.sublayer.compute_branch(torch.einsum("...n,...nd->...d", read, streams_BTND))
        mixed_BTMD = torch.einsum("...nm,...nd->...md", mix, streams_BTND)
        return mixed_BTMD + write.unsqueeze(-1) * f_BTD.unsqueeze(-2)


class ManifoldHyperSublayer(HyperSublayer):
    """The same with a doubly stochastic mixing matrix, so that its products cannot grow (Xie 2025, mHC)."""

    def __init__(self, sublayer: Sublayer, wiring: Wiring, number: int) -> None:
        super().__init__(sublayer, wiring, number)
        n = wiring.streams
        # Were all streams read alike they would get the same gradients and stay the same for ever. The norm in the
        # branch makes the sum of these weights irrelevant. 2 sigmoid(0) = 1: the branch writes to all.
        reads = torch.full((n,), -READ_LOGIT)
        reads[number % n] = READ_LOGIT
        self.read = nn.Parameter(reads)
        self.write = nn.Parameter(torch.zeros(n))
        self.mix = nn.Parameter(CARRY_LOGIT * torch.eye(n))
        self.offsets = ManifoldOffsets(wiring.d_model, n) if wiring.dynamic_streams else None

    def weights(self, streams_BTND: torch.Tensor) -> Weights:
        """Project the learnt numbers to where they may be."""
        read, write, mix = super().weights(streams_BTND)
        return torch.sigmoid(read), 2 * torch.sigmoid(write), doubly_stochastic(mix)


def doubly_stochastic(logits_NM: torch.Tensor) -> torch.Tensor:
    """Scale exp(logits) until rows and columns sum to 1 (Sinkhorn & Knopp 1967)."""
    log = logits_NM
    for _ in range(SINKHORN_ROUNDS):
        log = log - log.logsumexp(dim=-1, keepdim=True)
        log = log - log.logsumexp(dim=-2, keepdim=True)
    return log.exp()


class HyperBlock(nn.Module):
    """Attention and feed-forward, each joined to the streams by hyper-connections."""

    def __init__(self, wiring: Wiring, stack: Stack, block: int, first_values: FirstValues | None) -> None:
        super().__init__()
        inner = Block(wiring, stack, block, first_values)
        kind = ManifoldHyperSublayer if wiring.arrangement == "manifold-hyper" else HyperSublayer
        self.attention = kind(inner.attention, wiring, 2 * block - 2)
        self.mlp = kind(inner.mlp, wiring, 2 * block - 1)

    def forward(self, streams_BTND: torch.Tensor) -> torch.Tensor:
        """Run both sublayers."""
        streams: torch.Tensor = self.mlp(self.attention(streams_BTND))
        return streams
