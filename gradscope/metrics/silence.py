"""Gradients that are exactly zero or never arrive: asleep, dead, intermittent or cut off are four different things."""

from __future__ import annotations

from typing import Literal

from gradscope.metrics.facts import Facts
from gradscope.metrics.weights import Parameter

State = Literal["alive", "asleep", "dead", "intermittent", "unsure", "unseen"]

MOVED_PER_RATE = 0.5
"""Relative update per unit of learning rate above which a tensor moved by more than weight decay (fraction). Adam moves
a weight by about one learning rate, decay by at most a tenth of one times the weight."""

WITHOUT_DECAY = frozenset({"adam", "sgd"})
"""Optimizers that gradscope itself steps with and that leave a weight exactly alone which never had a gradient."""


def states(facts: Facts) -> dict[int, State]:
    """Classify every trainable parameter (row -> state) by its gradients over the watched steps."""
    moving = bool(facts.optimizer) and any(step > 0 for step in facts.steps)
    return {p.row: _state(facts, p.row, moving) for p in facts.trainable}


def _state(facts: Facts, row: int, moving: bool) -> State:
    norms = [facts.parameter_gradients.get(step, {}).get(row) for step in facts.steps]
    known = [norm for norm in norms if norm is not None]
    if not known:
        return "unseen"
    if all(norm != 0.0 for norm in known):
        return "alive"
    if known[0] == 0.0 and known[-1] != 0.0:
        return "asleep"
    if any(norm != 0.0 for norm in known) or _moved(facts, row):
        return "intermittent"
    return "dead" if moving and len(known) > 1 else "unsure"


def _moved(facts: Facts, row: int) -> bool:
    """Whether the weights show that a gradient arrived between the watched steps."""
    norms = {facts.weight_norms.get(step, {}).get(row) for step in facts.steps} - {None}
    if len(norms) > 1 and not facts.provenance.own_loop and facts.optimizer in WITHOUT_DECAY:
        return True
    rate = facts.learning_rate
    if rate is None:
        return False
    for step in facts.steps:
        update, weight = facts.update_norms.get(step, {}).get(row), facts.weight_norms.get(step, {}).get(row)
        if update is not None and weight is not None and update > MOVED_PER_RATE * rate * weight:
            return True
    return False


def closed_doors(facts: Facts) -> list[Parameter]:
    """Return the weights that start at exactly zero and do get a gradient: zero-initialised designs open with them.

    Zero biases beside a weight that is not zero are everywhere and close nothing; a single number (ReZero's alpha) and
    a gain (of a zero-initialised norm or a LayerScale) do.
    """
    if not facts.steps:
        return []
    weights = facts.weight_norms.get(facts.steps[0], {})
    grads = facts.parameter_gradients.get(facts.steps[0], {})
    solid = {p.module for p in facts.parameters if weights.get(p.row)}
    zero = [p for p in facts.trainable if weights.get(p.row) == 0.0 and grads.get(p.row)]
    return [p for p in zero if p.is_matrix or p.num_elements == 1 or p.module not in solid]
