"""What each finding weighs in the verdict, and the sentence it gives for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradscope.rules.finding import Finding

HALF = 0.5
"""Share of the parameters (fraction) that must be lost for the model as a whole not to train."""


@dataclass(frozen=True)
class Weight:
    """What a rule's findings contribute to the verdict.

    Attributes:
        error: Weight of an error: 2 will not train, 1 at risk.
        warning: Weight of a warning: two halves make a risk.
        reason: The reason in plain words, with {module}, and {whats} (samples or tokens) that are alike.
        mild: The same where it is a risk and not the end; "" where one sentence does for both.
    """

    error: float
    warning: float
    reason: str
    mild: str = ""


@dataclass(frozen=True)
class Ground:
    """One reason for a verdict, with its weight and the family of rules that look at the same thing."""

    weight: float
    sentence: str
    family: str


FATAL, RISK = 2.0, 1.0
"""Weights from which a model will not train (one ground alone) or is at risk (all grounds together)."""

HINT = 0.5
"""Weight of what only counts together with something else: a gradient that is lost at one place alone, so that what
lies on both sides of it trains."""

FAMILIES = {
    **dict.fromkeys(("GS101", "GS102", "GS103"), "size"),
    **dict.fromkeys(("GS108", "GS301", "GS305"), "directions"),
}
"""Rules that see the same thing from several sides: the size of the gradient, and the loss of directions in it."""

WEIGHTS: dict[str, Weight] = {
    "GS101": Weight(2, 1, "Almost no gradient reaches the first layers (from {module} down), so they will not learn.",
                    "Little gradient reaches the first layers (from {module} down), so they will learn slowly."),
    "GS102": Weight(
        2, 1, "The gradient grows so much toward the first layers ({module}) that no learning rate suits all of them.",
        "The gradient is far larger in the first layers ({module}) than in the last: no one rate suits all.",
    ),
    "GS103": Weight(1, 0.5, "One block ({module}) loses or adds far more gradient than all others."),
    "GS104": Weight(2, 0.25, "A NaN or infinity arises in {module}, and it will spread to every weight.",
                    "Plain SGD diverges at the rate of the inspection, which may not suit the size of this loss."),
    "GS105": Weight(2, 0.5, "No gradient gets back through {module}, and no optimizer step will change that.",
                    "No gradient gets back through {module}; the rest of the model learns without it."),
    "GS106": Weight(2, 0.25, "No gradient can reach {module} although it is meant to learn: the graph is cut.",
                    "No gradient can reach {module}: the graph is cut, and the rest of the model learns without it."),
    "GS107": Weight(2, 0.5, "The gradient does not survive the way back through time in {module}.",
                    "The gradient hardly survives the way back through time in {module}: early inputs come last."),
    "GS108": Weight(2, 0.5, "So few directions carry the gradient back that most of what lower layers need is lost."),
    "GS110": Weight(2, 0.5, "The weights (from {module} on) are all but zero and stay so: nothing passes through them.",
                    "The weights (from {module} on) start all but zero, so that learning begins late."),
    "GS111": Weight(2, 1, "The answers of the model hardly depend on its layers, so that none of them learns.",
                    "The answers of the model are of a size that the loss can do little with: learning begins late."),
    "GS203": Weight(1, 0.5, "The branch of {module} cancels the skip it is added to."),
    "GS205": Weight(1, 0.5, "A stack this deep is hard to train without skips."),
    "GS301": Weight(2, 0.5, "By the last layer all {whats} look the same, so the model cannot tell them apart."),
    "GS305": Weight(1, 0.25, "Attention in {module} gets almost no gradient for where to look."),
    "GS307": Weight(1, 1, "Attention in {module} normalises over the wrong axis, so samples or heads leak into it."),
    "GS308": Weight(1, 0.5, "The units of {module} are all alike and stay so: the layer can do no more than one unit."),
    "GS401": Weight(2, 1, "The gradients are too small for float16 and round to zero."),
    "GS402": Weight(1, 0.5, "The output of {module} is too large for float16."),
    "GS405": Weight(2, 0, "The gradients are so small that Adam's epsilon takes all but a little of every step."),
    "GS501": Weight(1, 0.5, "Each step replaces so much of the weights that training will jump."),
    "GS502": Weight(2, 0.5, "The optimizer does not change the weights of {module}.",
                    "The optimizer hardly changes the weights, or only a small part of them."),
    "GS503": Weight(1, 0.5, "The gradients of all earlier steps are added to those of each step."),
    "GS504": Weight(1, 1, "A second step raises in a plain loop: {module} keeps the graph of the step before."),
    "GS601": Weight(1, 0.25, "{module} normalises over so few values that its statistics are noise."),
    "GS602": Weight(2, 1, "The loss is fed with something else than it expects."),
    "GS605": Weight(1, 1, "The targets are far larger than the answers, and each step carries these a little only."),
}
"""The calibrated combination. Total decades (GS101, GS102), token similarity (GS301) and Jacobian anisotropy together
with either (GS108) each decide alone where they reach their failing level. Query starvation and the middle levels are
weak alone and count together. Codes that are not here explain or cost, and never decide."""


FROZEN = "The scale behind {module} is frozen at zero: until pretrained weights are loaded nothing learns there."
"""The reason where GS105 has seen why."""

UNWRITTEN = "The weights (from {module} on) hold whatever the memory held: nothing has initialised them."
"""The reason where GS110 has found values that nobody draws."""

ONE_ANSWER = "The model gives all but the same answer to every sample, so that the loss cannot tell them apart."
"""The reason where GS111 has looked at the logits of several samples."""


def ground_of(finding: Finding) -> Ground | None:
    """Weigh a finding; what concerns less than half of the parameters, or may heal, is a risk and not the end.

    How large steps of plain SGD are at the inspection's own rate depends on the scale of the loss: that has no weight,
    and neither has a small side part that may be silent by design.
    """
    known = WEIGHTS.get(finding.code)
    unweighed = finding.evidence.get("own_rate") or finding.evidence.get("may_be_meant")
    if known is None or finding.severity == "info" or unweighed:
        return None
    weight = known.error if finding.severity == "error" else known.warning
    share = finding.evidence.get("share_of_parameters")
    if finding.code == "GS105" and isinstance(share, float) and share >= HALF:
        weight = max(weight, RISK)
    if finding.evidence.get("at_risk"):
        weight = max(weight, RISK)
    if (isinstance(share, float) and share < HALF) or finding.evidence.get("may_recover"):
        weight = min(weight, RISK)
    if finding.evidence.get("at_one_place") or finding.evidence.get("learnt"):
        weight = min(weight, HINT)
    family = FAMILIES.get(finding.code, finding.code)
    return Ground(weight, _sentence(_reason(known, finding, weight), finding), family)


def _reason(known: Weight, finding: Finding, weight: float) -> str:
    if finding.evidence.get("frozen_scales"):
        return FROZEN
    if finding.evidence.get("unwritten"):
        return UNWRITTEN
    if "logit_spread" in finding.evidence:
        return ONE_ANSWER
    return (known.mild if weight < FATAL else "") or known.reason


def _sentence(reason: str, finding: Finding) -> str:
    """Fill in the module, and say so where the fault showed only after some steps."""
    whats = "samples" if "sample_cosine" in finding.evidence else "tokens"
    sentence = reason.format(module=finding.module or "the model", whats=whats)
    step = finding.evidence.get("step")
    if finding.code in ("GS101", "GS102") and isinstance(step, int) and step > 0:
        return f"After {step} steps {sentence[0].lower()}{sentence[1:]}"
    return sentence


def by_family(grounds: Sequence[Ground]) -> dict[str, float]:
    """Return the heaviest ground of every family: two views of one thing are not two reasons."""
    heaviest: dict[str, float] = {}
    for ground in grounds:
        heaviest[ground.family] = max(ground.weight, heaviest.get(ground.family, 0.0))
    return heaviest
