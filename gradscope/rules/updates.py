"""Update-to-weight ratios as the rules on updates read them."""

from __future__ import annotations

from gradscope.metrics.facts import Facts
from gradscope.metrics.weights import Parameter, update_to_weight


def updates_at_last_step(facts: Facts) -> list[tuple[Parameter, float]]:
    """Return the ratio of every matrix with a gradient and a norm, at the last watched step; [] without updates."""
    if not facts.optimizer or not facts.update_norms:
        return []
    step = max(facts.update_norms)
    updates, weights = facts.update_norms[step], facts.weight_norms.get(step, {})
    grads = facts.parameter_gradients.get(step, {})
    ratios = [
        (p, update_to_weight(updates.get(p.row), weights.get(p.row)))
        for p in facts.trainable
        if p.is_matrix and grads.get(p.row)
    ]
    return [(p, ratio) for p, ratio in ratios if ratio is not None]
