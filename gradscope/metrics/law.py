"""What a growing stream explains: the part of D that a normalised branch must cause and that harms nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gradscope.metrics.columns import log10_ratio


@dataclass(frozen=True)
class SiteGrowth:
    """One residual addition on the stream, with what the law needs of it.

    Attributes:
        normalised: Whether its branch normalises what it reads or gives (pre, sandwich or output placement, or a norm
            inside a branch whose sum is not normalised again).
        skip_norm: ||alpha x||, as added.
        out_norm: ||alpha x + f||.
        skip_scale: alpha where it is a constant, else None (then taken as 1).
    """

    normalised: bool
    skip_norm: float | None
    out_norm: float | None
    skip_scale: float | None = None


def predicted_decades(sites: Iterable[SiteGrowth]) -> float | None:
    """Return D_pred in decades; None where no addition on the stream has a normalised branch.

    A branch that normalises its input has a Jacobian proportional to 1 / ||x||, so an addition multiplies the gradient
    by sqrt(1 + ||f||^2 / ||x||^2) = ||out|| / ||skip||. Over a Pre-LN stack the product telescopes to
    D_pred = 0.5 log10(v_L / v_0), v being the variance of the stream (Xiong 2020; measured sqrt(1 + cL)). The sum over
    additions is the same number there, and stays right where a projection resets the stream, as in a ResNet.
    """
    found, total = False, 0.0
    for site in sites:
        growth = log10_ratio(site.out_norm, site.skip_norm)
        if not site.normalised or growth is None:
            continue
        found = True
        total += growth + (math.log10(abs(site.skip_scale)) if site.skip_scale else 0.0)
    return total if found else None


def excess_decades(decades: float | None, predicted: float | None) -> float | None:
    """Return what of D the law leaves unexplained, in decades.

    Only growth toward the input is explained: a gradient that shrinks keeps its full D, and a law that predicts more
    than was measured leaves zero, not a negative rest.
    """
    if decades is None or predicted is None or decades <= 0.0:
        return decades
    return max(decades - max(predicted, 0.0), 0.0)
