"""The Transformer around the blocks: embedding, stack, final norm, head; the same for every wiring."""

from __future__ import annotations

import torch
from torch import nn

from gradscope.variants.attention import FirstValues
from gradscope.variants.block import Block, BottomToTopBlock, ParallelBlock
from gradscope.variants.hyper import HyperBlock
from gradscope.variants.norms import make_norm, through
from gradscope.variants.stack import Stack, decoder_stack, encoder_stack, only_stack
from gradscope.variants.streams import SINGLE, STREAM_ENDS, DualBlock
from gradscope.variants.wiring import Wiring


class TokenEmbedding(nn.Module):
    """Token vectors plus, where wanted, a learnt vector per position: B x T ids to B x T x D."""

    def __init__(self, wiring: Wiring) -> None:
        super().__init__()
        self.tokens = nn.Embedding(wiring.vocab, wiring.d_model)
        learnt = wiring.position == "learnt"
        self.positions = nn.Parameter(torch.empty(wiring.tokens, wiring.d_model)) if learnt else None
        self.norm = make_norm(wiring.norm, wiring.d_model, wiring.eps) if wiring.embedding_norm else None

    def forward(self, ids_BT: torch.Tensor) -> torch.Tensor:
        """Look up and add."""
        x: torch.Tensor = self.tokens(ids_BT)
        if self.positions is not None:
            x = x + self.positions[: ids_BT.shape[1]]
        return through(self.norm, x)


def make_block(wiring: Wiring, stack: Stack, block: int, first_values: FirstValues | None) -> nn.Module:
    """Make block number `block` (from 1) of a stack."""
    return _BLOCKS.get(wiring.arrangement, Block)(wiring, stack, block, first_values)


_BLOCKS: dict[str, type[nn.Module]] = {
    "parallel": ParallelBlock,
    "bottom-to-top": BottomToTopBlock,
    "dual": DualBlock,
    "hyper": HyperBlock,
    "manifold-hyper": HyperBlock,
}


class Transformer(nn.Module):
    """Token ids (B x T) to logits (B x T x vocab) through one stack of blocks."""

    def __init__(self, wiring: Wiring) -> None:
        super().__init__()
        self.num_layers = wiring.layers
        stack = only_stack(wiring)
        self._first_values = FirstValues() if wiring.value_residual else None
        self.embed = TokenEmbedding(wiring)
        self.blocks = nn.ModuleList(
            make_block(wiring, stack, number, self._first_values) for number in range(1, wiring.layers + 1)
        )
        self.norm = make_norm(wiring.norm, wiring.d_model, wiring.eps) if wiring.has_final_norm else None
        self.head = nn.Linear(wiring.d_model, wiring.vocab, bias=wiring.bias)
        if wiring.tied:
            self.head.weight = self.embed.tokens.weight
        self._ends, self._num_streams = STREAM_ENDS.get(wiring.arrangement, SINGLE), wiring.streams

    def forward(self, ids_BT: torch.Tensor) -> torch.Tensor:
        """Predict a token at every position."""
        streams = self._ends.enter(self.embed(ids_BT), self._num_streams)
        for block in self.blocks:
            streams = block(streams)
        if self._first_values is not None:
            self._first_values.forget()
        logits: torch.Tensor = self.head(self._ends.leave(streams, self.norm))
        return logits


class EncoderDecoder(nn.Module):
    """Source and target ids (B x S, B x T) to logits (B x T x vocab); as many blocks on either side."""

    def __init__(self, wiring: Wiring) -> None:
        super().__init__()
        self.num_layers = wiring.layers
        encoder, decoder = encoder_stack(wiring), decoder_stack(wiring)
        numbers = range(1, wiring.layers + 1)
        self.source = TokenEmbedding(wiring)
        self.encoder = nn.ModuleList(Block(wiring, encoder, number, None) for number in numbers)
        self.memory_norm = make_norm(wiring.norm, wiring.d_model, wiring.eps) if wiring.has_final_norm else None
        self.embed = TokenEmbedding(wiring)
        self.decoder = nn.ModuleList(Block(wiring, decoder, number, None) for number in numbers)
        self.norm = make_norm(wiring.norm, wiring.d_model, wiring.eps) if wiring.has_final_norm else None
        self.head = nn.Linear(wiring.d_model, wiring.vocab, bias=wiring.bias)

    def forward(self, source_BS: torch.Tensor, target_BT: torch.Tensor) -> torch.Tensor:
        """Encode the source, then predict the next target token at every position."""
        memory = self.source(source_BS)
        for block in self.encoder:
            memory = block(memory)
        memory = through(self.memory_norm, memory)
        x = self.embed(target_BT)
        for block in self.decoder:
            x = block(x, memory)
        logits: torch.Tensor = self.head(through(self.norm, x))
        return logits
