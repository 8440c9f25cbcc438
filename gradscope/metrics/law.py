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


def excess_decades(decades: float | None, predicted: float | None, of_size: float | None = None) -> float | None:
    """Return what of D the laws leave unexplained, in decades.

    The stream law explains growth toward the input alone, that of size (`size_decades`) both signs. A law that predicts
    more than was measured leaves zero, not a rest of the other sign.

    Args:
        decades: D.
        predicted: D_pred of the stream law.
        of_size: What the size of the stream explains.
    """
    if decades is None:
        return None
    if decades <= 0.0:
        return min(decades - min(of_size or 0.0, 0.0), 0.0)
    return max(decades - max(predicted or 0.0, of_size or 0.0, 0.0), 0.0)


LEAST_SIZE = 1e-2
"""Root mean square of the end of the stream below which a norm no longer forgets its size: at 1e-2 the epsilon of 1e-5
already takes 5 % of a LayerNorm's output, at 1e-3 70 %."""


def size_decades(start_norm: float | None, end_norm: float | None, end_count: int | None) -> float | None:
    """Return the decades that the size of the stream explains where its end is divided by its own size.

    A loss that a factor on h_L does not change has a gradient proportional to 1 / ||h_L||, and a factor c between two
    layers multiplies the gradient in front of it by c: D = log10(||h_L|| / ||h_0||), while every layer below gets the
    gradient that it would get without the factor (Euler: <g_L, h_L> = 0).
    """
    if not end_count or end_norm is None or end_norm < LEAST_SIZE * math.sqrt(end_count):
        return None
    return log10_ratio(end_norm, start_norm)
