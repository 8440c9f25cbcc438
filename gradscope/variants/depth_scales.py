"""Scales that depend on depth: what the papers multiply skips, branches, norms and weights by.

`num_layers` counts blocks (N in the papers); a block has two sublayers, so a stack has 2N of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class DeepNormScale:
    """The two constants of one stack.

    Attributes:
        alpha: Factor on the skip.
        beta: Xavier gain of the value, output and feed-forward weights.
    """

    alpha: float
    beta: float


def deepnorm_single(num_layers: int) -> DeepNormScale:
    """DeepNorm of a decoder-only or encoder-only stack (Wang 2022, DeepNet, table in figure 2)."""
    return DeepNormScale((2 * num_layers) ** 0.25, (8 * num_layers) ** -0.25)


def deepnorm_encoder(num_encoder: int, num_decoder: int) -> DeepNormScale:
    """DeepNorm of the encoder of an encoder-decoder (Wang 2022)."""
    product = (num_encoder**4 * num_decoder) ** (1 / 16)
    return DeepNormScale(0.81 * product, 0.87 / product)


def deepnorm_decoder(num_decoder: int) -> DeepNormScale:
    """DeepNorm of the decoder of an encoder-decoder (Wang 2022)."""
    return DeepNormScale((3 * num_decoder) ** 0.25, (12 * num_decoder) ** -0.25)


def sub_ln_gain(num_layers: int, *, cross_attention: bool = False) -> float:
    """Gain of the value, output and feed-forward weights under Sub-LN (Wang 2022, Magneto): sqrt(ln 2N), ln 3M."""
    return math.sqrt(math.log((3 if cross_attention else 2) * num_layers))


def layerscale_start(num_layers: int) -> float:
    """Initial LayerScale: 0.1 up to 18 blocks, 1e-5 up to 24, 1e-6 deeper (Touvron 2021, CaiT, section 2)."""
    if num_layers <= 18:  # noqa: PLR2004  CaiT's own step
        return 0.1
    return 1e-5 if num_layers <= 24 else 1e-6  # noqa: PLR2004  CaiT's own step


def inverse_sqrt_sublayers(num_layers: int) -> float:
    """1/sqrt(2N): keeps the stream's variance bounded (Hayou 2021; Yang 2023; GPT-2's scaled initialisation)."""
    return 1 / math.sqrt(2 * num_layers)


def fixup_factor(num_branches: int, layers_in_branch: int) -> float:
    """Factor on all but the last weight of a branch: L^(-1/(2m-2)) (Zhang 2019, Fixup, section 3)."""
    return float(num_branches ** (-1 / (2 * layers_in_branch - 2)))


def layernorm_scaling(block: int) -> float:
    """1/sqrt(l) after the norms of block l, counted from 1 (Sun 2025, LayerNorm Scaling)."""
    return 1 / math.sqrt(block)
