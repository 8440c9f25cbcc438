"""The verdict on a model: the calibrated combination of a few numbers, not a count of findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradscope.metrics.facts import Facts
from gradscope.metrics.headline import headline
from gradscope.record import Recording
from gradscope.rules.finding import Diagnosis, Finding, Verdict
from gradscope.rules.grounds import FATAL, RISK, by_family, ground_of
from gradscope.rules.idle import took_no_part
from gradscope.rules.registry import RULES, levels_of

SEVERITIES = ("error", "warning", "info")

SHALLOW = 8
"""Weight matrices (count) up to which depth cannot do harm: the steepest plain stack measured, sigmoid layers at 0.63
decades each, loses the failing 3.5 decades in six."""


WIDE = 1e6
"""Ratio between weight gradients (root mean square) beyond which a model is not called healthy when its depth could not
be followed. A judgement, not calibrated: wider than the failing 3.5 decades of depth, with room for uneven layers."""


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
    return Diagnosis(verdict, " ".join(filter(None, (reason, took_no_part(facts)))), findings, headline(facts))


def judge(facts: Facts, findings: Sequence[Finding]) -> tuple[Verdict, str]:
    """Return the verdict and its reason in one sentence."""
    grounds = sorted((g for f in findings if (g := ground_of(f)) is not None), key=lambda ground: -ground.weight)
    if grounds and grounds[0].weight >= FATAL:
        return "will-not-train", grounds[0].sentence
    if sum(by_family(grounds).values()) >= RISK:
        return "at-risk", grounds[0].sentence
    missing = _too_little(facts)
    if missing:
        return "cannot-say", missing
    return "will-train", _healthy(facts)


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
    # A head that starts at zero lets no gradient through at the first step.
    if any(profile.decades is not None for profile in facts.judged_profiles):
        layer = "layer that took part" if took_no_part(facts) else "layer"
        return f"Every {layer} gets a gradient of usable size, and nothing else measured stands in the way of training."
    if _is_deep(facts):
        return (
            "Every parameter that should learn gets a finite gradient and nothing measured stands in the way, though "
            "no single path was found along which to follow the depth."
        )
    return "Every parameter that should learn gets a finite gradient; the model is too shallow for depth to matter."
