"""Which stack of blocks a part belongs to: what its depth-dependent constants are computed from."""

from __future__ import annotations

from dataclasses import dataclass

from gradscope.variants import depth_scales
from gradscope.variants.depth_scales import DeepNormScale
from gradscope.variants.wiring import Wiring

SELF_SUBLAYERS = 2
"""Sublayers of a block: attention and feed-forward."""


@dataclass(frozen=True)
class Stack:
    """One tower of blocks.

    Attributes:
        num_blocks: Its blocks.
        causal: Whether a token sees only itself and those before it.
        cross: Whether its blocks attend to a memory as well.
        deepnorm: DeepNorm's constants for this stack.
    """

    num_blocks: int
    causal: bool
    cross: bool
    deepnorm: DeepNormScale

    @property
    def num_sublayers(self) -> int:
        """Sublayers of the whole stack: the number of branches."""
        return self.num_blocks * (SELF_SUBLAYERS + self.cross)

    @property
    def sub_ln_gain(self) -> float:
        """Sub-LN's gain for this stack."""
        return depth_scales.sub_ln_gain(self.num_blocks, cross_attention=self.cross)


def only_stack(wiring: Wiring) -> Stack:
    """Describe the one stack of an encoder-only or decoder-only model."""
    constants = depth_scales.deepnorm_single(wiring.layers)
    return Stack(wiring.layers, causal=wiring.structure == "decoder", cross=False, deepnorm=constants)


def encoder_stack(wiring: Wiring) -> Stack:
    """Describe the encoder of an encoder-decoder with as many blocks on either side."""
    constants = depth_scales.deepnorm_encoder(wiring.layers, wiring.layers)
    return Stack(wiring.layers, causal=False, cross=False, deepnorm=constants)


def decoder_stack(wiring: Wiring) -> Stack:
    """Describe the decoder of an encoder-decoder."""
    return Stack(wiring.layers, causal=True, cross=True, deepnorm=depth_scales.deepnorm_decoder(wiring.layers))
