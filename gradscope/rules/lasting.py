"""What of a change along the depth lasts: the part that decides whether a network can be trained at all."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.rules import levels


def lasting(facts: Facts, decades: Sequence[float]) -> float:
    """Return how many of the decades at the first and the last watched step count for the verdict.

    An optimizer that rescales bounds every step, so the network lives on and what counts is what lasts: the milder one.
    Plain SGD feels the worse one at once.
    """
    return min(decades) if facts.rescales_gradients else max(decades)


def size_is_fatal(facts: Facts) -> bool:
    """Whether the size of the gradient alone keeps the network from training: GS101 or GS102 then name the place."""
    profiles = [profile for profile in (facts.profile, facts.later_profile) if profile]
    excess = [value for profile in profiles if (value := facts.excess_decades(profile)) is not None]
    if not excess:
        return False
    adam = facts.rescales_gradients
    growth = levels.FAIL_GROWTH if adam else levels.FAIL_GROWTH_SGD
    loss = levels.FATAL_DECADES if adam else levels.FAIL_DECADES_SGD
    return lasting(facts, excess) >= growth.value or lasting(facts, [-value for value in excess]) >= loss.value
