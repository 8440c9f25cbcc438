"""What of a change along the depth lasts: the part that decides whether a network can be trained at all."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradscope.metrics.along import along_depth, at_one_place
from gradscope.metrics.depth import DepthProfile
from gradscope.metrics.facts import Facts
from gradscope.metrics.faint import faint, layers
from gradscope.metrics.weights import share_of
from gradscope.rules import levels


def lasting(facts: Facts, decades: Sequence[float]) -> float:
    """Return how many of the decades at the first and the last watched step count for the verdict.

    An optimizer that rescales bounds every step, so the network lives on and what counts is what lasts: the milder one.
    Plain SGD feels the worse one at once.
    """
    return min(decades) if facts.rescales_gradients else max(decades)


def lasting_along(facts: Facts, sign: float) -> float:
    """Return the decades of growth (sign 1) or loss (sign -1) that last and lie along the depth, not at one place."""
    values = [along_depth(facts, profile) for profile in facts.judged_profiles]
    known = [sign * value for value in values if value is not None]
    return lasting(facts, known) if known else -math.inf


def lasting_growth(facts: Facts) -> float:
    """Return the decades of growth that last.

    Where the stream changes its size at one place, to another tower or a decoder, the loss may reach what lies below by
    another way: an optimizer that rescales does not mind what the gradient does there.
    """
    known = [value for profile in facts.judged_profiles if (value := _growth(facts, profile)) is not None]
    return lasting(facts, known) if known else -math.inf


def _growth(facts: Facts, profile: DepthProfile) -> float | None:
    excess, place = facts.excess_decades(profile), at_one_place(facts, profile)
    if excess is None or place is None or not place.resizes or not facts.rescales_gradients:
        return excess
    return excess - place.beyond_decades


def lasting_loss(facts: Facts, losses: Sequence[float], fatal: float) -> float:
    """Return the decades of loss that last.

    What is lost at one place counts only from the fatal level on, and only as far as the steps leave it: what lies
    above trains, and one layer soon finds its scale. Where a part of the model is all but zero, that is told instead
    (GS110).

    Args:
        facts: The recording.
        losses: Decades lost at the first and the last watched step, positive.
        fatal: Decades from which next to no network trains.
    """
    along = lasting_along(facts, -1.0)
    whole = min(losses) if facts.rescales_gradients else losses[-1]
    if facts.rescales_gradients:
        signal = signal_loss(facts)
        along, whole = min(along, signal), min(whole, signal)
    if whole < fatal or share_of(faint(facts, facts.steps[-1]), layers(facts)) >= levels.WARN_FAINT_SHARE.value:
        return along
    return max(along, whole)


def signal_loss(facts: Facts) -> float:
    """Return the decades by which the last watched step lost what tells one input from another; infinite if unknown.

    An optimizer that rescales makes up for a gradient that is small because the activations are. What it cannot make
    up for is a signal that is small beside the activation that carries it, under the biases that every sample shares:
    the loss then hardly changes with a relative change of what lies below, and ||g_0|| ||h_0|| falls short of
    ||g_L|| ||h_L||.
    """
    kept = facts.judged_profiles[-1].scale_free_decades if facts.judged_profiles else None
    return math.inf if kept is None else -kept


def size_is_fatal(facts: Facts) -> bool:
    """Whether the size of the gradient alone keeps the network from training: GS101 or GS102 then name the place."""
    losses = [-value for profile in facts.judged_profiles if (value := facts.excess_decades(profile)) is not None]
    if not losses:
        return False
    adam = facts.rescales_gradients
    growth = levels.FAIL_GROWTH if adam else levels.FAIL_GROWTH_SGD
    fatal = (levels.FATAL_DECADES if adam else levels.FAIL_DECADES_SGD).value
    return lasting_growth(facts) >= growth.value or lasting_loss(facts, losses, fatal) >= fatal
