"""GS111: logits that are far too large, that hardly depend on the layers, or that are alike for all samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.metrics.output import leverage_log10, logits_rms
from gradscope.metrics.silence import states
from gradscope.rules import levels
from gradscope.rules.culprit import finding_at
from gradscope.rules.finding import Finding, Severity
from gradscope.rules.gs301_collapse import ALMOST_EQUAL, collapsed
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.lasting import size_is_fatal
from gradscope.rules.numbers import factor
from gradscope.rules.with_depth import fades_to_zero

RISING_DECADES = 1.5
"""Decades (log10) by which the watched steps raise the leverage of what was only started small, such as a last layer
near zero: its own gradient is of full size, and one step gives it its size."""

ROUNDING = 1e-6
"""Differences over the size of the logits (fraction) that float32 leaves between equal numbers summed otherwise."""


EQUAL = (
    "Every sample gets the same logits: look for a mean, a softmax or a norm over the batch instead of the classes, or "
    "for an output that does not depend on the input at all."
)
BEHIND = (
    "Samples still differ at the end of the stream: look behind it, for a small factor or a large temperature on the "
    "logits, or a last layer that is scaled down. Take it out, or scale it to one."
)
BEFORE = (
    "Samples are alike before the last layer already: look for what shrinks the signal below the biases that all of "
    "them share, such as an input that is not normalised, a layer scaled down, or weights far too small."
)
"""What to do about logits that are alike, by where the samples become so."""


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Judge the size of the logits, how they differ, and what the layers do to them, over the watched steps."""
    if not facts.optimizer or len(facts.steps) < 2:  # noqa: PLR2004 - what starts at zero shows after a step
        return []
    # What the layers lose on the way, or stop, is told by GS101, GS301 and GS105: these cannot tell whether any of the
    # input gets past a layer that is dead, and logits that are equal can.
    if size_is_fatal(facts) or fades_to_zero(facts) or collapsed(facts):
        return []
    dead = "dead" in states(facts).values()
    ends = (facts.steps[0], facts.steps[-1])
    sizes = [size for step in ends if (size := logits_rms(facts, step)) is not None and math.isfinite(size)]
    if sizes and min(sizes) >= thresholds["logits_rms"] and not dead:
        return [_loud(facts, min(sizes), thresholds)]
    if (spread := _stuck_spread(facts, ends, thresholds["logit_spread"])) is not None:
        equal = spread <= ROUNDING * max(sizes, default=1.0)
        return [_alike(facts, spread, equal, thresholds)] if equal or not dead else []
    if dead:
        return []
    levers = [lever for step in ends if (lever := leverage_log10(facts, step)) is not None]
    if len(levers) < len(ends) or max(levers) > thresholds["leverage_log10"]:
        return []
    return [] if levers[-1] - levers[0] > RISING_DECADES else [_faint(facts, max(levers), thresholds)]


def _stuck_spread(facts: Facts, ends: tuple[int, int], limit: float) -> float | None:
    """Return how far logits differ between samples where that is too little and the steps do not help, else None.

    Inputs that were made up say nothing of it: pictures of noise are alike to a healthy network.
    """
    spreads = [max(found.values()) for step in ends if (found := facts.observed("logit_spread", step))]
    if len(spreads) < len(ends) or max(spreads) > limit or facts.provenance.inputs_synthetic:
        return None
    return None if spreads[-1] > spreads[0] * 10**RISING_DECADES else max(spreads)


def _loud(facts: Facts, size: float, thresholds: Levels) -> Finding:
    message = (
        f"The logits are {size:.2g} in size, where a loss over classes needs numbers of order one; the loss starts far "
        "above that of a guess, and training is spent on shrinking them."
    )
    advice = (
        "Look for a factor on the logits, a last layer with large weights, or a stream that grows in front of it: "
        "divide by it, initialise the last layer smaller, or put a norm in front of it."
    )
    evidence = {"logits_rms": size, "threshold_logits_rms": thresholds["logits_rms"]}
    return finding_at(facts, "GS111", "warning", _place(facts), message, evidence, advice)


def _faint(facts: Facts, lever: float, thresholds: Levels) -> Finding:
    severity: Severity = "warning" if facts.rescales_gradients else "error"
    message = (
        f"The logits hardly depend on the layers: were the output of the last block doubled, they would move by "
        f"{10**lever:.0e} where numbers of order one matter, {factor(lever)} times too little."
    )
    advice = (
        "Look between the last block and the loss: a small factor or temperature on the logits, a bound they have run "
        "into (tanh, clamp), a last layer or an input that is far too small. Take it out, or scale it to one."
    )
    evidence = {"leverage_log10": lever, "threshold_leverage_log10": thresholds["leverage_log10"]}
    return finding_at(facts, "GS111", severity, _place(facts), message, evidence, advice)


def _alike(facts: Facts, spread: float, equal: bool, thresholds: Levels) -> Finding:
    severity: Severity = "error" if equal or not facts.rescales_gradients else "warning"
    amount = "do not differ at all between samples" if equal else f"differ by {spread:.0e} between samples"
    message = f"The logits {amount}, where differences of order one matter: the loss gets one answer for all of them."
    advice = EQUAL if equal else BEHIND if _apart(facts) else BEFORE
    evidence = {"logit_spread": spread, "threshold_logit_spread": thresholds["logit_spread"], "equal": equal}
    return finding_at(facts, "GS111", severity, _place(facts), message, evidence, advice)


def _apart(facts: Facts) -> bool:
    """Whether samples still differ at the end of the stream, so that it is behind it that they become alike."""
    cosines = [facts.last_cosine("sample_cosine", later=later) for later in (False, True)]
    return all(cosine is not None and cosine < ALMOST_EQUAL for cosine in cosines)


def _place(facts: Facts) -> str:
    """Return the module at which the stream ends; the fault lies there or behind it."""
    profile = facts.profile
    return profile.stations[profile.ends[-1]].module if profile else ""


DOC = RuleDoc(
    measures="""
The output of the model, where a cross-entropy reads it as logits, at the first and the last watched step: its root
mean square, and the leverage of the end of the stream on it, ‖g_L‖·‖h_L‖ / (‖g_out‖·√rows), which is how far the
logits of a row would move were the output h_L of the last block doubled; and how far they differ between samples. The
scale of the loss, its reduction and the batch size cancel.""",
    why="""
A softmax works with numbers of order one. From thousands on one class is certain, mostly a wrong one, and an optimizer
whose steps are bounded takes thousands of them to bring the logits down; a network that is nearly linear may still
learn as a perceptron does, so that this warns. Where they are a thousandth, the loss is that
of a guess whatever the layers do, and the gradient of every layer is as small: plain SGD then stands still, and Adam,
which makes up for it, learns late.""",
    false_positives="""
A loss that divides its logits by a large temperature inside the loss function sees other numbers than the model's
output. What is only started small, such as a last layer near zero, is not reported: its own gradient is of full size
and the first steps lift it. Outputs that no cross-entropy reads have no known scale and are not judged.""",
    example="""
```python
logits = 1e-4 * self.head(x)            # the loss stays at log(classes)
logits = 1e+4 * self.head(x)            # the loss starts in the thousands
```""",
    advice="""
1. Take out the factor, the temperature or the bound.
2. Initialise the last layer at a usual scale.
3. Put a norm in front of it.""",
    references=(
        "Wortsman et al. 2023, Small-scale proxies for large-scale Transformer training instabilities "
        "(arXiv:2309.14322): what large logits do",
    ),
)

RULE = Rule(
    code="GS111",
    name="output-scale",
    severity="error",
    summary="The logits are far too large, hardly depend on the layers, or are the same for all samples.",
    thresholds=(levels.LOUD_LOGITS, levels.FAINT_LEVERAGE, levels.LOGIT_SPREAD),
    check=check,
    doc=DOC,
)
