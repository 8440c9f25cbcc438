"""Update-to-weight ratios as the rules on updates read them."""

from __future__ import annotations

from gradscope.metrics.facts import Facts
from gradscope.metrics.faint import faint
from gradscope.metrics.weights import Parameter, update_to_weight


def updates_at(facts: Facts, step: int) -> list[tuple[Parameter, float]]:
    """Return the update-to-weight ratio of every matrix with a gradient and a norm at a watched step; [] without.

    Matrices that start at zero, or all but, are left out: their first steps are what gives them a size.
    """
    if not facts.optimizer:
        return []
    start = facts.weight_norms.get(facts.steps[0], {})
    growing = {p.row for p in faint(facts, facts.steps[0])}
    updates, weights = facts.update_norms.get(step, {}), facts.weight_norms.get(step, {})
    grads = facts.parameter_gradients.get(step, {})
    ratios = [
        (p, update_to_weight(updates.get(p.row), weights.get(p.row)))
        for p in facts.trainable
        if p.is_matrix and grads.get(p.row) and start.get(p.row) != 0.0 and p.row not in growing
    ]
    return [(p, ratio) for p, ratio in ratios if ratio is not None]


def updates_at_last_step(facts: Facts) -> list[tuple[Parameter, float]]:
    """Return them at the last watched step."""
    return updates_at(facts, max(facts.update_norms)) if facts.update_norms else []


def steps_are_real(facts: Facts) -> bool:
    """Whether the size of the steps says something of the run that is judged.

    Those that plain SGD takes in gradscope's own loop depend on the scale of the loss, which a verdict must not.
    """
    return facts.rescales_gradients or facts.provenance.own_loop
