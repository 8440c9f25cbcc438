"""What D = log10(|g_0| / |g_L|) of the built-in models is at initialisation, in which range, and how it is known.

Per variant and initial scheme, at `EXPECTED_DEPTHS` blocks. Networks of a fixed depth (`resnet18` …) have a list of
their own in `expected_networks`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

Decades = tuple[float | None, float | None, float | None]

EXPECTED_DEPTHS = (10, 24, 48)

SHARE = 0.2
"""Part of the expected value that is added to its spread: random factors add up with depth."""

PRE_TYPE, MIXED, POST_TYPE, SKIPLESS = 0.15, 0.3, 0.45, 0.6
"""Spreads in decades. Pre-type wirings hardly differ between seeds (0.02). Those with a norm on the stream, in a part
of the blocks or with a way round it (mixed) or in all of them, and those without skips differ by 0.1 to 0.4, and by as
much between activations, sequence lengths and position strengths (docs/variants/decades.md)."""

REFERENCE = "geometric mean over seeds of a reference implementation that shares no code with this package"
AS_PRE_LN = "as Pre-LN: the norm's kind does not change the stream"
ZERO = "0: the branches start at zero or nearly so"


@dataclass(frozen=True)
class Expected:
    """One variant's D under one initial scheme.

    Attributes:
        decades: At 10, 24 and 48 blocks; None where it is not known or not finite in float32.
        spread: Half of the range, in decades.
        source: How it is known.
        share: Part of the value that widens the range.
    """

    decades: Decades
    spread: float = PRE_TYPE
    source: str = REFERENCE
    share: float = SHARE

    def range_at(self, place: int) -> tuple[float, float] | None:
        """Return the lowest and highest D at `EXPECTED_DEPTHS[place]`; None where nothing is expected."""
        value = self.decades[place]
        if value is None:
            return None
        half = self.spread + self.share * abs(value)
        return value - half, value + half


def per_block(slope: float, *, first: int = 0) -> Decades:
    """Return a constant number of decades per block, the first `first` blocks left out."""
    ten, more, most = (slope * (depth - first) for depth in EXPECTED_DEPTHS)
    return ten, more, most


def growing_stream(growth: float) -> Decades:
    """Return 0.5 log10(1 + c L): the gradient of a stream whose variance grows by c per block (Xiong 2020)."""
    ten, more, most = (0.5 * math.log10(1 + growth * depth) for depth in EXPECTED_DEPTHS)
    return ten, more, most


def _nothing(source: str = ZERO) -> Expected:
    return Expected((0.0, 0.0, 0.0), 0.03, source)


_PRE: dict[str, Decades] = {"xavier": (0.44, 0.70, 0.88), "pytorch": (0.09, 0.17, 0.25)}
_PRE_LN = {init: Expected(decades) for init, decades in _PRE.items()}
_LIKE_PRE_LN = {init: Expected(decades, source=AS_PRE_LN) for init, decades in _PRE.items()}
_STREAMS = {
    init: Expected(
        tuple(None if value is None else value + math.log10(2) for value in decades),  # type: ignore[arg-type]  # three
        source="Pre-LN + log10 2: four equal streams, 4 |g| at their common start over sqrt(4) |g| at their end",
    )
    for init, decades in _PRE.items()
}
_IDENTITY = {"xavier": _nothing(), "pytorch": _nothing()}
_DEEPNORM = {
    init: Expected((0.0, 0.0, 0.0), 0.05, "0: Wang 2022, total loss at most exp(-1/(4 sqrt(2N)))") for init in _PRE
}

EXPECTED: dict[str, dict[str, Expected]] = {
    "no-residual": {
        "xavier": Expected((-0.1, 0.3, 0.4), SKIPLESS),
        "pytorch": Expected((-1.06, -1.11, -1.26), SKIPLESS),
    },
    "no-residual-no-norm": {
        "xavier": Expected((-4.7, -10.2, -20.4), SKIPLESS, f"{REFERENCE}; at 48 blocks twice its value at 24"),
        "pytorch": Expected(per_block(-1.33), SKIPLESS, f"{REFERENCE} at 10 blocks, -1.33 per block"),
    },
    "no-residual-post-ln": {
        "xavier": Expected((0.3, 0.4, 0.7), SKIPLESS),
        "pytorch": Expected((-0.36, -0.46, -0.59), SKIPLESS),
    },
    "residual-no-norm": {"xavier": Expected((5.5, 15.3, None)), "pytorch": Expected((0.11, 0.57, 2.57))},
    "post-ln": {
        "xavier": Expected((0.02, 0.18, -0.09), POST_TYPE),
        "pytorch": Expected((-0.03, -0.13, -0.34)),
    },
    "pre-ln": _PRE_LN,
    "pre-rms": _PRE_LN,
    "parallel": _PRE_LN,
    "value-residual": _PRE_LN,
    "pre-bn": _LIKE_PRE_LN,
    "pre-gn": _LIKE_PRE_LN,
    "article-layernorm": _LIKE_PRE_LN,
    "article-layernorm-biased": _LIKE_PRE_LN,
    "peri-ln": {"xavier": Expected((0.78, 0.99, 1.09)), "pytorch": Expected((0.46, 0.63, 0.79))},
    "output-norm": {"xavier": Expected((1.63, 3.05, 5.99)), "pytorch": Expected((0.56, 0.86, 1.23))},
    "output-norm-qk": {
        "xavier": Expected((0.73, 0.90, 1.06)),
        "pytorch": Expected(growing_stream(2.0), source="0.5 log10(1 + 2L): unit branches whatever the weights' scale"),
    },
    "mix-ln": {"xavier": Expected((0.44, 0.72, 0.81), MIXED), "pytorch": _LIKE_PRE_LN["pytorch"]},
    "b2t": {"xavier": Expected((0.03, 0.03, -0.1), MIXED), "pytorch": Expected((0.0, -0.01, -0.04))},
    "residual-dual": {"xavier": Expected((0.46, 0.51, 0.42), POST_TYPE)},
    "deepnorm": _DEEPNORM,
    "deepnorm-encoder": _DEEPNORM,
    "deepnorm-enc-dec": _DEEPNORM,
    "admin": {"xavier": Expected((0.03, 0.03, 0.03))},
    "lns": {"xavier": Expected((0.16, 0.21, 0.22)), "pytorch": Expected((0.03, 0.03, 0.04))},
    "depth-mup": {"xavier": Expected((0.05, 0.05, 0.05))},
    "completep": {"xavier": _nothing(), "pytorch": _nothing()},
    "rezero": _IDENTITY,
    "skipinit": {**_IDENTITY, "he": _nothing()},
    "layerscale": _IDENTITY,
    "zero-last": _IDENTITY,
    "fixup": {"he": Expected((None, None, None), source="none: the head starts at zero, no gradient before step 1")},
    "sub-ln": {"xavier": Expected((1.2, 1.4, 1.7))},
    "normformer": {"xavier": Expected((0.9, 1.1, 1.3))},
    "dyt": {"xavier": Expected((0.09, 0.28, 0.61))},
    "highway": {
        "xavier": Expected(
            per_block(2 * math.log10(1 - 1 / (1 + math.exp(3)))),
            source="log10(1 - sigmoid(-3)) per sublayer: the carry gate alone",
        )
    },
    "hyper-connections": _STREAMS,
    "hyper-connections-static": _STREAMS,
    "mhc": _STREAMS,
    "ngpt": {"pytorch": Expected((0.0, 0.0, 0.0), 0.1, "0: steps of 0.05 toward unit vectors on a sphere")},
    "gpt2": {"gpt2": Expected((0.08, 0.08, 0.08), 0.1)},
    "llama": {
        "gpt2": Expected((0.53, 0.76, 0.90), source="0.5 log10(v_L / v_0) of its own stream's measured variances")
    },
    "bert": {"gpt2": Expected((0.0, 0.0, 0.0), 0.1, "0: branches of N(0, 0.02) are small beside a normed stream")},
    "vit": {"gpt2": Expected((0.45, 0.45, 0.45), 0.45, "the normal range of Pre-LN wirings, 0 to 0.9", share=0.0)},
}
