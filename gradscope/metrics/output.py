"""The model's output where a cross-entropy reads it as logits: how large it is, and how far the layers move it.

A logit is a number of order one: a loss over classes forgets what is far above it and does not see what is far below.
The leverage of the stream's end, ||g_L|| ||h_L|| / (||g_out|| sqrt(n)) over the n rows of the output, is how far the
logits of a row would move were h_L doubled; the loss's scale, its reduction and the batch size cancel.
"""

from __future__ import annotations

import math

from gradscope.metrics.columns import log10_ratio
from gradscope.metrics.facts import Facts


def output_rms(facts: Facts, step: int) -> float | None:
    """Return the root mean square of what the model returns at a step; None where it is called more than once."""
    found = _output(facts)
    norm = facts.call_forwards.get(step, {}).get(found[0]) if found else None
    return norm / math.sqrt(found[1]) if found and norm is not None else None


def logits_rms(facts: Facts, step: int) -> float | None:
    """Return the root mean square of the logits that a cross-entropy reads at a step, those that are masked left out.

    A recording without that number has the output's size in its place; None where no cross-entropy was seen.
    """
    if read := facts.observed("logits_rms", step):
        return max(read.values())
    return output_rms(facts, step) if facts.observed("loss_classes") else None


def leverage_log10(facts: Facts, step: int) -> float | None:
    """Return log10 of the leverage of the stream's end on the logits at a step; None where either is unknown."""
    found, profile, classes = _output(facts), facts.profiles.get(step), facts.observed("loss_classes")
    above = facts.call_gradients.get(step, {}).get(found[0]) if found else None
    if found is None or profile is None or not above or not classes:
        return None
    grad, forward = profile.grad_norm[profile.ends[-1]], profile.forward_norm[profile.ends[-1]]
    if grad is None or forward is None:
        return None
    num_rows = found[1] / max(classes.values())
    return log10_ratio(grad * forward, above * math.sqrt(num_rows))


GUESS_SHARE = 0.5
"""Loss (fraction of a guess's) that the first step must have had, so that a small weight on the loss is no learning."""

LEARNT_SHARE = 0.05
"""Loss (fraction of a guess's, ln of the number of classes) below which several rows must have been told apart: one
answer for two rows of different classes gives 0.10 over 1,000 classes and 0.30 over ten."""


def has_learnt(facts: Facts) -> bool:
    """Whether the loss has fallen, within the watched steps, far below that of any one answer to all rows."""
    found, losses = _output(facts), facts.recording.tables["steps"]["loss"]
    if found is None or not losses or losses[0] is None or losses[-1] is None:
        return False
    classes = max(facts.observed("loss_classes").values(), default=0)
    if classes <= 1:  # no cross-entropy was seen, or one without a choice
        return False
    guess = math.log(classes)
    return found[1] > classes and losses[0] > GUESS_SHARE * guess and losses[-1] < LEARNT_SHARE * guess


def _output(facts: Facts) -> tuple[int, int] | None:
    """Return the only call of the whole model, as its row, and how many numbers it returns."""
    calls, rows = facts.recording.tables["calls"], facts.calls_of.get("", ())
    if len(rows) != 1:
        return None
    shape = calls["shape"][rows[0]]
    return (rows[0], math.prod(shape)) if shape and math.prod(shape) > 0 else None
