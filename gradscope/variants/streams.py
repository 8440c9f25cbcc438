"""How streams start and end, and the block that carries two. Streams are B x T x D, several B x T x N x D."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gradscope.variants.block import Block
from gradscope.variants.norms import through


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
