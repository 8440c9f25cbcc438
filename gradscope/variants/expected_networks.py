"""Expected D of the models that are not Transformers: closed forms of infinite width, and residual networks."""

from __future__ import annotations

import math

from gradscope.variants.expected import EXPECTED_DEPTHS, Decades, Expected, per_block

WIDTH = 64
"""The built-in networks' own width, n."""

NORM_RELU = 0.5 * math.log10(math.pi / (math.pi - 1))
"""Decades per layer without skips whose rectified values have their mean taken out (Yang 2019): 0.0832."""

SIGMOID = -0.62699
"""Decades per sigmoid layer, N(0, 1/n): 0.5 log10 0.05572 (Schoenholz 2017, chi_1)."""

WALK = 0.25
"""Spread in decades of a product of random factors over three seeds at width 64 (0.307 sqrt(L/n) each)."""


def _layers(slope: float, source: str, spread: float = WALK) -> Expected:
    """Decades between the first and the last layer's output."""
    return Expected(per_block(slope, first=1), spread, source)


def _stream_from_first() -> Decades:
    """0.5 log10((1 + L) / 2): the stream's variance is 2 after the first block and grows by 1."""
    ten, more, most = (0.5 * math.log10((1 + depth) / 2) for depth in EXPECTED_DEPTHS)
    return ten, more, most


EXPECTED_NETWORKS: dict[str, dict[str, Expected]] = {
    "mlp-linear": {"normal": _layers(-1 / (2 * WIDTH * math.log(10)), "0.5 [psi(n/2) - ln(n/2)] / ln 10 per layer")},
    "mlp-orthogonal": {"orthogonal": Expected((0.0, 0.0, 0.0), 1e-3, "0 exactly (Saxe 2013)")},
    "mlp-tanh": {"normal": _layers(0.0, "0: tanh at criticality (Schoenholz 2017)", 0.5)},
    "mlp-sigmoid": {"normal": _layers(SIGMOID, "0.5 log10 0.05572 per layer (Schoenholz 2017)")},
    "mlp-relu": {"pytorch": _layers(-0.5 * math.log10(6), "-0.5 log10 6 per layer: nn.Linear's default and ReLU")},
    "mlp-relu-he": {
        "he": _layers(-5 / (4 * WIDTH * math.log(10)), "-5/(4 n ln 10) per layer (Hanin & Nica 2018)", 0.5)
    },
    "mlp-batchnorm": {"he": _layers(NORM_RELU, "0.5 log10(pi/(pi - 1)) per layer (Yang 2019)")},
    "mlp-residual": {"he": _layers(0.5 * math.log10(2), "0.5 log10 2 per block: the energy doubles (Zhang 2019)")},
    "mlp-pre-ln": {"he": Expected(_stream_from_first(), 0.2, "0.5 log10(v_L / v_1), v_l = 1 + l (Xiong 2020)")},
    "article-resnet": {
        "he": Expected(per_block(0.5 * math.log10(2)), WALK, "0.5 log10 2 per block: the energy doubles (Zhang 2019)"),
        "pytorch": Expected((0.0, 0.0, 0.0), 0.3, "0: torch's default makes small branches"),
    },
}

RESIDUAL_NETWORKS: dict[int, tuple[float, float]] = {
    18: (0.98, 1.20),
    34: (1.48, 2.39),
    50: (2.35, 3.71),
    101: (3.04, 7.47),
    152: (3.64, 10.78),
}
"""D with and without shortcuts by depth: a quarter of the width, 32 x 32 images of noise, He initialisation, two to
three seeds of a reference implementation that shares no code with this package."""

RESIDUAL_SPREAD = 0.5
"""Half of their range in decades, beside a fifth of the value."""

OPEN_GATES = "between a tenth of a decade and log10 2 per step: gates of one half, the more open ones last longest"
RECURRENT = -0.3416
"""Decades per step of tanh with torch's default weights, inputs of variance 1: 0.5 log10(E tanh'^2 / 3), mean field."""

THROUGH_TIME: dict[str, Expected] = {
    "lstm": Expected(per_block(-0.2, first=1), 0.1, OPEN_GATES, share=0.5),
    "gru": Expected(per_block(-0.2, first=1), 0.1, OPEN_GATES, share=0.5),
    "rnn": _layers(RECURRENT, "0.5 log10(E tanh'^2 / 3) per step (Schoenholz 2017, chi_1)"),
}
"""Gradient at the first token over that at the last, at 10, 24 and 48 tokens."""
