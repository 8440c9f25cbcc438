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


@dataclass(frozen=True)
class Ground:
    """One reason for a verdict: how bad it is (2 will not train, 1 at risk) and the sentence that says so."""

    weight: int
    sentence: str


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
    grounds = sorted(_grounds(findings), key=lambda ground: -ground.weight)
    if grounds:
        return ("will-not-train" if grounds[0].weight > 1 else "at-risk"), grounds[0].sentence
    missing = _too_little(facts)
    if missing:
        return "cannot-say", missing
    return "will-train", _healthy(facts)


def _grounds(findings: Sequence[Finding]) -> list[Ground]:
    found = []
    for finding in findings:
        weight = _weight(finding)
        if weight:
            found.append(Ground(weight, PLAIN[finding.code].format(module=finding.module or "the model")))
    return found


def _weight(finding: Finding) -> int:
    if finding.code not in PLAIN:
        return 0
    if finding.severity == "warning":
        return 1
    if finding.severity != "error":
        return 0
    share = finding.evidence.get("share_of_parameters")
    return 1 if isinstance(share, float) and share < HALF else 2


PLAIN = {
    "GS101": "Almost no gradient reaches the first layers (from {module} down), so they will not learn.",
    "GS102": "The gradient grows so much toward the first layers ({module}) that no learning rate suits all of them.",
    "GS104": "A NaN or infinity is born in {module}, and it will spread to every weight.",
    "GS105": "No gradient gets back through {module}, and no optimizer step will change that.",
    "GS106": "No gradient can reach {module} although it is meant to learn: the graph is cut.",
}
"""Code -> the reason in plain words. Only these rules decide the verdict; the others explain it or speak of cost."""


def _too_little(facts: Facts) -> str:
    if not facts.steps:
        return "No step was measured."
    grads = facts.parameter_gradients.get(facts.steps[0], {})
    if not any(norm is not None for norm in grads.values()) and facts.profile is None:
        return "No gradient was seen, neither of a parameter nor along the depth of the model."
    return ""


def _healthy(facts: Facts) -> str:
    profile = facts.profile
    if profile is None or profile.decades is None:
        return "Every parameter that should learn gets a finite gradient; the model is too shallow for depth to matter."
    return "Every layer gets a gradient of usable size, and nothing else measured stands in the way of training."
