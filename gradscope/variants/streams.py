"""Blocks that carry more than one stream, and how streams start and end.

Shapes: B batch, T tokens, N streams, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gradscope.variants.attention import FirstValues
from gradscope.variants.block import Block
from gradscope.variants.norms import through
from gradscope.variants.stack import Stack
from gradscope.variants.sublayer import Sublayer
from gradscope.variants.wiring import Wiring

SINKHORN_ROUNDS = 20
"""Alternations of row and column scaling (Xie 2025, mHC, section 4.2)."""

CARRY_LOGIT = 8.0
"""Diagonal logit of mHC's mixing at initialisation: e^-8 off the diagonal, so that each stream carries on by itself."""


class DualBlock(Block):
    """A Post-LN stream x, and a second stream that sums the branches unnormalised (Xie 2023, ResiDual)."""

    def forward(self, streams: Any, *_memory: torch.Tensor) -> Any:
        """Step both streams through both sublayers."""
        x, d = streams
        for sublayer in (self.attention, self.mlp):
            f = sublayer.compute_branch(x)
            x = through(sublayer.norm_after, sublayer.join(x, f))
            d = d + f
        return x, d


class HyperSublayer(nn.Module):
    """mix(H) + post * f(pre . H): N streams that one branch reads from and writes to (Zhu 2024, static matrices).

    Starts equal to Pre-LN: the branch reads one stream (the next one at the next sublayer), writes to all.
    """

    def __init__(self, sublayer: Sublayer, num_streams: int, number: int) -> None:
        super().__init__()
        self.sublayer = sublayer
        reads = torch.zeros(num_streams)
        reads[number % num_streams] = 1.0
        self.pre = nn.Parameter(reads)
        self.post = nn.Parameter(torch.ones(num_streams))
        self.mix = nn.Parameter(torch.eye(num_streams))

    def matrices(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the reading (N), writing (N) and mixing (N x N) weights."""
        return self.pre, self.post, self.mix

    def forward(self, streams_BTND: torch.Tensor) -> torch.Tensor:
        """Read, compute, mix, write."""
        pre_N, post_N, mix_NN = self.matrices()
        read_BTD = torch.einsum("n,btnd->btd", pre_N, streams_BTND)
        f_BTD = self.sublayer.compute_branch(read_BTD)
        return torch.einsum("mn,btnd->btmd", mix_NN, streams_BTND) + post_N[:, None] * f_BTD[:, :, None]


class ManifoldHyperSublayer(HyperSublayer):
    """The same with a doubly stochastic mixing matrix, so that its products cannot grow (Xie 2025, mHC)."""

    def __init__(self, sublayer: Sublayer, num_streams: int, number: int) -> None:
        super().__init__(sublayer, num_streams, number)
        # sigmoid(-ln(N - 1)) = 1/N: the branch reads the mean of the streams; 2 sigmoid(0) = 1: it writes to all.
        self.pre = nn.Parameter(torch.full((num_streams,), 1 / num_streams).logit())
        self.post = nn.Parameter(torch.zeros(num_streams))
        self.mix = nn.Parameter(CARRY_LOGIT * torch.eye(num_streams))

    def matrices(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Project the learnt numbers to where they may be."""
        return torch.sigmoid(self.pre), 2 * torch.sigmoid(self.post), doubly_stochastic(self.mix)


def doubly_stochastic(logits_NN: torch.Tensor) -> torch.Tensor:
    """Scale exp(logits) until rows and columns sum to 1 (Sinkhorn & Knopp 1967)."""
    log = logits_NN
    for _ in range(SINKHORN_ROUNDS):
        log = log - log.logsumexp(dim=1, keepdim=True)
        log = log - log.logsumexp(dim=0, keepdim=True)
    return log.exp()


class HyperBlock(nn.Module):
    """Attention and feed-forward, each joined to the streams by hyper-connections."""

    def __init__(self, wiring: Wiring, stack: Stack, block: int, first_values: FirstValues | None) -> None:
        super().__init__()
        inner = Block(wiring, stack, block, first_values)
        kind = ManifoldHyperSublayer if wiring.arrangement == "manifold-hyper" else HyperSublayer
        self.attention = kind(inner.attention, wiring.streams, 2 * block - 2)
        self.mlp = kind(inner.mlp, wiring.streams, 2 * block - 1)

    def forward(self, streams_BTND: torch.Tensor) -> torch.Tensor:
        """Run both sublayers."""
        streams: torch.Tensor = self.mlp(self.attention(streams_BTND))
        return streams


@dataclass(frozen=True)
class StreamEnds:
    """How the embedding becomes the streams, and how they become what the head reads.

    Attributes:
        enter: Embedding (and number of streams) to the streams.
        leave: Streams and final norm to B x T x D.
    """

    enter: Callable[[torch.Tensor, int], Any]
    leave: Callable[[Any, nn.Module | None], torch.Tensor]


def _enter_hyper(x: torch.Tensor, num_streams: int) -> torch.Tensor:
    return x.unsqueeze(2).expand(-1, -1, num_streams, -1)


SINGLE = StreamEnds(lambda x, _: x, lambda x, norm: through(norm, x))
DUAL = StreamEnds(lambda x, _: (x, x), lambda streams, norm: streams[0] + through(norm, streams[1]))
HYPER = StreamEnds(_enter_hyper, lambda streams, norm: through(norm, streams.sum(dim=2)))

STREAM_ENDS = {"dual": DUAL, "hyper": HYPER, "manifold-hyper": HYPER}
"""By arrangement; every other has a single stream."""
