"""What of a model took no part in the watched steps, in a sentence that stands beside the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.covering import covering_modules
from gradscope.metrics.facts import Facts
from gradscope.metrics.weights import Parameter
from gradscope.rules.gs106_disconnected import disconnected, unreached
from gradscope.rules.numbers import listed

NOTICEABLE = 0.05
"""Share of the trainable numbers (fraction) from which a verdict is not of the whole model: a pooler is less, a tower
of a model of several kinds of input is more. A judgement, not calibrated."""


def idle(facts: Facts) -> list[Parameter]:
    """Return the trainable parameters that no gradient reached although nothing is cut."""
    cut = {p.row for p in disconnected(facts)}
    return [p for p in unreached(facts) if p.row not in cut]


def reason_of(facts: Facts, parameters: Sequence[Parameter]) -> str:
    """Return why parameters got no gradient: without an input, or without a way to the loss."""
    uncalled = sum(not facts.was_called(p.module) for p in parameters)
    if uncalled == len(parameters):
        return "their modules were not called"
    if not uncalled:
        return "no gradient leads from the loss to them"
    return "they were not called, or no gradient leads from the loss to them"


def share_of_numbers(facts: Facts, parameters: Sequence[Parameter]) -> float:
    """Return how much of all trainable numbers some parameters hold (fraction)."""
    return sum(p.num_elements for p in parameters) / max(sum(p.num_elements for p in facts.trainable), 1)


def took_no_part(facts: Facts) -> str:
    """Return a sentence on the parts that a verdict does not hold for; empty where they are too small to matter."""
    parameters = idle(facts)
    share = share_of_numbers(facts, parameters)
    if share < NOTICEABLE:
        return ""
    uncalled = [p for p in parameters if not facts.was_called(p.module)]
    unused = [p for p in parameters if facts.was_called(p.module)]
    said = [f"{listed(_largest_first(facts, uncalled))} got no input"] if uncalled else []
    said += [f"no gradient leads from the loss to {listed(_largest_first(facts, unused))}"] if unused else []
    return f"{share:.0%} of the parameters took no part: {'; '.join(said)}."


def _largest_first(facts: Facts, parameters: Sequence[Parameter]) -> list[str]:
    """Return the modules that some parameters make up, those with most numbers first."""
    places = covering_modules(facts, [p.name for p in parameters])
    sizes = {
        place: sum(p.num_elements for p in parameters if p.name == place or f"{p.module}.".startswith(f"{place}."))
        for place in places
    }
    return sorted(places, key=lambda place: -sizes[place])
