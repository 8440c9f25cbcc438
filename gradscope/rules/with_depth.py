"""What the rules about a change with depth share (GS101, GS102): levels, decades, and how they are told."""

from __future__ import annotations

from gradscope.metrics.depth import DepthProfile
from gradscope.metrics.facts import Facts
from gradscope.rules.finding import Value
from gradscope.rules.kind import Levels
from gradscope.rules.levels import FATAL_DECADES
from gradscope.rules.numbers import count

ZERO_START_DECADES = 3.5
"""Decades (log10) already lost before the gradient becomes exactly zero, to call that zero an end of vanishing. Below
it, the zero has another cause (a dead layer: GS105). Same level as the error."""

FEWEST_BLOCKS = 3
"""Blocks (count) over which a change is one of depth and can be an error; over one or two it is that of a single place,
often of a norm over a handful of values, and warns."""


def levels_in_force(facts: Facts, thresholds: Levels) -> tuple[float, float]:
    """Return the error and warning levels in decades for the optimizer that was used."""
    if facts.rescales_gradients:
        return thresholds["decades"], thresholds["warn_decades"]
    return thresholds["sgd_decades"], thresholds["sgd_warn_decades"]


def lost_decades(facts: Facts, profile: DepthProfile) -> float | None:
    """Return what no law explains of D; where the gradient underflows to zero, down to its last non-zero station."""
    if profile.decades is not None:
        return facts.excess_decades(profile)
    lowest = profile.lost_below
    if lowest is None:
        return None
    decades = profile.gradient_decades[lowest]
    return decades if decades is not None and decades <= -ZERO_START_DECADES else None


def fades_to_zero(facts: Facts) -> bool:
    """Whether so much is lost along the depth that what arrives may be rounded to zero."""
    losses = [lost for profile in facts.judged_profiles if (lost := lost_decades(facts, profile)) is not None]
    return min(losses, default=0.0) <= -FATAL_DECADES.value


def slope_evidence(profile: DepthProfile) -> dict[str, Value]:
    """Return the mean slope in decades per block, its 95 % interval, and the number of blocks it is taken over."""
    slope = profile.decades_per_block
    return {
        "decades_per_block": slope.mean if slope else None,
        "decades_per_block_low": slope.low if slope else None,
        "decades_per_block_high": slope.high if slope else None,
        "num_blocks": profile.num_blocks,
    }


def when(profile: DepthProfile) -> str:
    """Write at which step a profile was taken, "" for initialisation."""
    return f" after {count(profile.step, 'step')}" if profile.step else ""
