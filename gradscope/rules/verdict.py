"""The verdict on a model: the calibrated combination of a few numbers, not a count of findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gradscope.metrics.facts import Facts
from gradscope.metrics.headline import headline
from gradscope.record import Recording
from gradscope.rules.finding import Diagnosis, Finding, Verdict
from gradscope.rules.registry import RULES, levels_of

SEVERITIES = ("error", "warning", "info")

HALF = 0.5
"""Share of the parameters (fraction) that must be lost for the model as a whole not to train."""


SHALLOW = 8
"""Weight matrices (count) up to which depth cannot do harm: the steepest plain stack measured, sigmoid layers at 0.63
decades each, loses the failing 3.5 decades in six."""


WIDE = 1e6
"""Ratio between weight gradients (root mean square) beyond which a model is not called healthy when its depth could not
be followed. A judgement, not calibrated: wider than the failing 3.5 decades of depth, with room for uneven layers."""


@dataclass(frozen=True)
class Weight:
    """What a rule's findings contribute to the verdict.

    Attributes:
        error: Weight of an error: 2 will not train, 1 at risk.
        warning: Weight of a warning: two halves make a risk.
        reason: The reason in plain words, with {module}.
    """

    error: float
    warning: float
    reason: str


@dataclass(frozen=True)
class Ground:
    """One reason for a verdict, with its weight and the family of rules that look at the same thing."""

    weight: float
    sentence: str
    family: str


FATAL, RISK = 2.0, 1.0
"""Weights from which a model will not train (one ground alone) or is at risk (all grounds together)."""

FAMILIES = {
    **dict.fromkeys(("GS101", "GS102", "GS103"), "size"),
    **dict.fromkeys(("GS108", "GS301", "GS305"), "directions"),
}
"""Rules that see the same thing from several sides: the size of the gradient, and the loss of directions in it."""

WEIGHTS: dict[str, Weight] = {
    "GS101": Weight(2, 1, "Almost no gradient reaches the first layers (from {module} down), so they will not learn."),
    "GS102": Weight(
        2, 1, "The gradient grows so much toward the first layers ({module}) that no learning rate suits all of them."
    ),
    "GS103": Weight(1, 0.5, "One block ({module}) loses or adds far more gradient than all others."),
    "GS104": Weight(2, 1, "A NaN or infinity arises in {module}, and it will spread to every weight."),
    "GS105": Weight(2, 0.5, "No gradient gets back through {module}, and no optimizer step will change that."),
    "GS106": Weight(2, 0.25, "No gradient can reach {module} although it is meant to learn: the graph is cut."),
    "GS107": Weight(2, 0.5, "The gradient does not survive the way back through time in {module}."),
    "GS108": Weight(2, 0.5, "So few directions carry the gradient back that most of what lower layers need is lost."),
    "GS203": Weight(1, 0.5, "The branch of {module} cancels the skip it is added to."),
    "GS205": Weight(1, 0.5, "A stack this deep is hard to train without skips."),
    "GS301": Weight(2, 0.5, "By the last layer all tokens look the same, so the model cannot tell them apart."),
    "GS305": Weight(1, 0.5, "Attention in {module} gets almost no gradient for where to look."),
    "GS307": Weight(1, 1, "Attention in {module} normalises over the wrong axis, so samples or heads leak into it."),
    "GS401": Weight(2, 1, "The gradients are too small for float16 and round to zero."),
    "GS402": Weight(1, 0.5, "The output of {module} is too large for float16."),
    "GS501": Weight(1, 0.5, "Each step replaces so much of the weights that training will jump."),
    "GS502": Weight(1, 0.5, "The optimizer does not change the weights of {module}."),
    "GS601": Weight(1, 0.25, "{module} normalises over so few values that its statistics are noise."),
    "GS602": Weight(2, 1, "The loss is fed with something else than it expects."),
}
"""The calibrated combination. Total decades (GS101, GS102), token similarity (GS301) and Jacobian anisotropy together
with either (GS108) each decide alone where they reach their failing level. Query starvation and the middle levels are
weak alone and count together. Codes that are not here explain or cost, and never decide."""


def diagnose(recording: Recording, thresholds: Mapping[str, float] | None = None) -> Diagnosis:
    """Judge a recording.

    Args:
        recording: What was measured.
        thresholds: Levels that replace defaults, by "CODE.name", such as {"GS101.decades": 3.0}.

    Raises:
        ConfigError: An unknown threshold.
    """
    levels = levels_of(thresholds)
    facts = Facts(recording)
    findings = tuple(
        sorted(
            (finding for rule in RULES for finding in rule.check(facts, levels[rule.code])),
            key=lambda finding: SEVERITIES.index(finding.severity),
        )
    )
    verdict, reason = judge(facts, findings)
    return Diagnosis(verdict, reason, findings, headline(facts))


def judge(facts: Facts, findings: Sequence[Finding]) -> tuple[Verdict, str]:
    """Return the verdict and its reason in one sentence."""
    grounds = sorted((g for f in findings if (g := _ground(f)) is not None), key=lambda ground: -ground.weight)
    if grounds and grounds[0].weight >= FATAL:
        return "will-not-train", grounds[0].sentence
    if sum(_by_family(grounds).values()) >= RISK:
        return "at-risk", grounds[0].sentence
    missing = _too_little(facts)
    if missing:
        return "cannot-say", missing
    return "will-train", _healthy(facts)


def _ground(finding: Finding) -> Ground | None:
    """Weigh a finding; what concerns less than half of the parameters, or may heal, is a risk and not the end."""
    known = WEIGHTS.get(finding.code)
    if known is None or finding.severity == "info":
        return None
    weight = known.error if finding.severity == "error" else known.warning
    share = finding.evidence.get("share_of_parameters")
    if (isinstance(share, float) and share < HALF) or finding.evidence.get("may_recover"):
        weight = min(weight, RISK)
    family = FAMILIES.get(finding.code, finding.code)
    return Ground(weight, _sentence(known.reason, finding), family)


def _sentence(reason: str, finding: Finding) -> str:
    """Fill in the module, and say so where the fault showed only after some steps."""
    sentence = reason.format(module=finding.module or "the model")
    step = finding.evidence.get("step")
    if finding.code in ("GS101", "GS102") and isinstance(step, int) and step > 0:
        return f"After {step} steps {sentence[0].lower()}{sentence[1:]}"
    return sentence


def _by_family(grounds: Sequence[Ground]) -> dict[str, float]:
    """Return the heaviest ground of every family: two views of one thing are not two reasons."""
    heaviest: dict[str, float] = {}
    for ground in grounds:
        heaviest[ground.family] = max(ground.weight, heaviest.get(ground.family, 0.0))
    return heaviest


def _too_little(facts: Facts) -> str:
    """Return what is missing for a verdict, "" where nothing essential is."""
    if not facts.steps:
        return "No step was measured."
    grads = facts.parameter_gradients.get(facts.steps[0], {})
    if not any(norm is not None for norm in grads.values()) and facts.profile is None:
        return "No gradient was seen, neither of a parameter nor along the depth of the model."
    if _is_deep(facts) and facts.profile is None and not facts.call_gradients.get(facts.steps[0]):
        return "Only parameter gradients were measured, which do not show what a model this deep does to its gradient."
    if _is_deep(facts) and facts.profile is None and _weight_spread(facts) > WIDE:
        return (
            "The gradients of the weights lie many powers of ten apart, and no path through the model was found that "
            "would tell whether depth is the reason."
        )
    return ""


def _weight_spread(facts: Facts) -> float:
    """Return the largest over nearly the smallest root mean square of weight gradients at the first step.

    Zeros and the smallest tenth are left out: the router of a single expert, say, gets nothing but rounding noise.
    """
    grads = facts.parameter_gradients.get(facts.steps[0], {})
    matrices = [p for p in facts.trainable if p.is_matrix and p.role not in ("query", "key")]
    sizes = [norm / p.num_elements**0.5 for p in matrices if (norm := grads.get(p.row))]
    return max(sizes) / sorted(sizes)[len(sizes) // 10] if sizes else 1.0


def _is_deep(facts: Facts) -> bool:
    return sum(parameter.is_matrix for parameter in facts.trainable) > SHALLOW


def _healthy(facts: Facts) -> str:
    profile = facts.profile
    if profile is not None and profile.decades is not None:
        return "Every layer gets a gradient of usable size, and nothing else measured stands in the way of training."
    if _is_deep(facts):
        return (
            "Every parameter that should learn gets a finite gradient and nothing measured stands in the way, though "
            "no single path was found along which to follow the depth."
        )
    return "Every parameter that should learn gets a finite gradient; the model is too shallow for depth to matter."
