"""What D = log10(|g_0| / |g_L|) of the token models is at initialisation, by initial scheme.

Geometric means over seeds at 10, 24 and 48 blocks, width 64, token embeddings of variance 1, from a reference
implementation that shares no code with this package; None where it was not measured or is not finite. Between seeds
they vary by 0.02 (pre-type wirings), 0.1 (Post-LN) or 0.3 decades (without skips).
"""

from __future__ import annotations

Decades = tuple[float | None, float | None, float | None]

EXPECTED_DEPTHS = (10, 24, 48)

_ZERO: Decades = (0.0, 0.0, 0.0)
_PRE: dict[str, Decades] = {"xavier": (0.44, 0.70, 0.88), "pytorch": (0.09, 0.17, 0.25)}

EXPECTED_DECADES: dict[str, dict[str, Decades]] = {
    "no-residual": {"xavier": (-0.1, 0.3, 0.4), "pytorch": (-1.06, -1.11, -1.26)},
    "no-residual-no-norm": {"xavier": (-4.7, -10.2, None), "pytorch": (-13.3, None, None)},
    "no-residual-post-ln": {"xavier": (0.3, 0.4, 0.7), "pytorch": (-0.36, -0.46, -0.59)},
    "residual-no-norm": {"xavier": (5.5, 15.3, None), "pytorch": (0.11, 0.57, 2.57)},
    "post-ln": {"xavier": (0.02, 0.18, -0.09), "pytorch": (-0.03, -0.13, -0.34)},
    "pre-ln": _PRE,
    "pre-rms": _PRE,
    "parallel": _PRE,
    "value-residual": _PRE,
    "peri-ln": {"xavier": (0.78, 0.99, 1.09), "pytorch": (0.46, 0.63, 0.79)},
    "output-norm": {"xavier": (1.63, 3.05, 5.99), "pytorch": (0.56, 0.86, 1.23)},
    "output-norm-qk": {"xavier": (0.73, 0.90, 1.06)},
    "mix-ln": {"xavier": (0.44, 0.72, 0.81)},
    "b2t": {"xavier": (0.03, 0.03, -0.1), "pytorch": (0.0, -0.01, -0.04)},
    "residual-dual": {"xavier": (0.46, 0.51, 0.42)},
    "deepnorm": {"xavier": _ZERO, "pytorch": _ZERO},
    "deepnorm-encoder": {"xavier": _ZERO, "pytorch": _ZERO},
    "admin": {"xavier": (0.03, None, None)},
    "lns": {"xavier": (0.16, 0.21, 0.22), "pytorch": (0.03, 0.03, 0.04)},
    "depth-mup": {"xavier": (0.05, 0.05, 0.05)},
    "completep": {"xavier": _ZERO},
    "rezero": {"xavier": _ZERO, "pytorch": _ZERO},
    "skipinit": {"xavier": _ZERO, "pytorch": _ZERO, "he": _ZERO},
    "layerscale": {"pytorch": _ZERO},
    "zero-last": {"xavier": _ZERO, "pytorch": _ZERO},
    "sub-ln": {"xavier": (1.2, 1.4, 1.7)},
    "normformer": {"xavier": (0.9, 1.1, 1.3)},
    "dyt": {"xavier": (0.09, 0.28, 0.61)},
}
