"""How much of a change of the gradient lies along the depth, and how much at one place alone.

One block can change the gradient as much as all others together: the place where pictures enter a text model, a small
embedding before the first large branch, a layer with a tiny scale. What lies on its two sides is as it was, so that it
does to a network what one layer does, and not what depth does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from gradscope.metrics.depth import DepthProfile
from gradscope.metrics.expected import expected_decades
from gradscope.metrics.facts import Facts


@dataclass(frozen=True)
class OnePlace:
    """The block that adds most to a change.

    Attributes:
        index: Index of the block's upper station in the profile.
        jump_decades: What it changes the gradient by.
        beyond_decades: How much of that goes beyond the median of the other blocks; never negative.
        resizes: Whether another stream begins there or it has another size: a tower, a decoder, a projection.
    """

    index: int
    jump_decades: float
    beyond_decades: float
    resizes: bool


def steepest(profile: DepthProfile, total: float, explained: Sequence[float] | None = None) -> OnePlace | None:
    """Find the block, or the step to another stream, that adds most to a change; None for fewer than two.

    Args:
        profile: The gradient along the stream.
        total: The change; its sign says in which direction to look.
        explained: Decades per station that a law explains (`expected_decades`) and that are not counted.
    """
    steps: list[tuple[int, int, float]] = []
    gradients = profile.gradient_decades
    for below, above in pairwise(profile.ends):
        low, high = gradients[below], gradients[above]
        if low is None or high is None:
            return None
        steps.append((below, above, low - high - (explained[below] - explained[above] if explained else 0.0)))
    if len(steps) < 2:  # noqa: PLR2004 - it takes another one to compare with
        return None
    sign = math.copysign(1.0, total)
    most = max(range(len(steps)), key=lambda number: sign * steps[number][2])
    below, above, jump = steps[most]
    beyond = sign * (jump - median(step for number, (_, _, step) in enumerate(steps) if number != most))
    resizes = profile.num_elements[below] != profile.num_elements[above] or profile.stations[above].kind == "start"
    return OnePlace(above, jump, beyond, resizes)


def at_one_place(facts: Facts, profile: DepthProfile) -> OnePlace | None:
    """Return the block that adds most to what the laws leave unexplained of D."""
    excess = facts.excess_decades(profile)
    if excess is None:
        return None
    explains = excess > 0.0 or facts.size_decades(profile) is not None
    return steepest(profile, excess, expected_decades(facts, profile) if explains else None)


def along_depth(facts: Facts, profile: DepthProfile) -> float | None:
    """Return the excess of D as if the block that adds most to it did what the other blocks usually do, in decades."""
    excess, place = facts.excess_decades(profile), at_one_place(facts, profile)
    if not excess or place is None:
        return excess
    return math.copysign(max(abs(excess) - place.beyond_decades, 0.0), excess)
