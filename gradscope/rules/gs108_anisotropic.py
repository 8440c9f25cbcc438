"""GS108: few directions of the Jacobian carry the gradient through the stream."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradscope.metrics.along import along_depth
from gradscope.metrics.facts import Facts
from gradscope.rules import levels
from gradscope.rules.culprit import depth_culprit, finding_at, station_module, surroundings
from gradscope.rules.finding import Finding, Severity
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.lasting import lasting_along, size_is_fatal

ALIKE_SAMPLES = 0.975
"""Mean cosine between samples above which plain SGD needs more directions than Adam: ReLU networks that failed under it
had 0.98 and more, networks with as few directions that trained 0.97 and less."""


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Judge kappa_J at the first step it was measured, together with what else is lost."""
    values = facts.observed("jacobian_anisotropy")
    if not values:
        return []
    kappa = max(values.values())
    limit = _failing_level(facts, thresholds)
    if kappa < min(limit, thresholds["warn_kappa"]) or not _comparable(facts):
        return []
    harmless = _has_tokens(facts) and _change(facts) < thresholds["sgd_decades"]
    severity: Severity = "error" if kappa >= limit else "info" if harmless else "warning"
    if size_is_fatal(facts):
        severity = "info"
    profile = facts.profile
    module = station_module(depth_culprit(profile, profile.decades or 0.0).station) if profile else ""
    return [
        finding_at(
            facts,
            "GS108",
            severity,
            module,
            f"Only about one direction in {kappa:.0f} carries the gradient from the end of the stream to its start "
            f"(Jacobian anisotropy {kappa:.1f}; 1 is even).",
            {
                "jacobian_anisotropy": kappa,
                "threshold_kappa": limit if severity == "error" else thresholds["warn_kappa"],
                "excess_decades": max(_excesses(facts), key=abs, default=0.0),
            },
            _advice(facts),
        )
    ]


def _failing_level(facts: Facts, thresholds: Levels) -> float:
    """Return the level of kappa_J from which this network fails, infinite where it takes a second sign that is missing.

    kappa_J of a Transformer grows with its width and length, so that no level alone is right for all sizes: a healthy
    Peri-LN of 12 blocks has 14 at 12 tokens of width 32 and 88 at 16 tokens of width 64. A second sign settles it: a
    gradient that changes along the depth beyond the stream law, or tokens that are alike.
    """
    second = thresholds["decades" if facts.rescales_gradients else "sgd_decades"]
    if _change(facts) >= second:
        return thresholds["kappa_with_decades" if facts.rescales_gradients else "warn_kappa"]
    if _has_tokens(facts):
        return thresholds["kappa"] if _tokens_alike(facts) else math.inf
    slow = not facts.rescales_gradients and (facts.last_cosine("sample_cosine") or 0.0) >= ALIKE_SAMPLES
    return thresholds["sgd_kappa"] if slow else math.inf


def _tokens_alike(facts: Facts) -> bool:
    """Whether tokens are alike and were so from the start: a first step can push all of them one way for a while."""
    cosines = facts.token_cosines
    return cosines[0] >= levels.WARN_TOKEN_COSINE.value and max(cosines) >= levels.WARN_LATER_TOKEN_COSINE.value


def _has_tokens(facts: Facts) -> bool:
    return bool(facts.token_cosines)


def _excesses(facts: Facts) -> list[float]:
    return [along_depth(facts, profile) or 0.0 for profile in facts.judged_profiles]


def _change(facts: Facts) -> float:
    """Return the decades along the depth: the largest loss, or the growth that the first steps do not undo."""
    return max(*(-excess for excess in _excesses(facts)), lasting_along(facts, 1.0), 0.0)


def _comparable(facts: Facts) -> bool:
    """Whether the network is of the kind the failing levels were calibrated on.

    Where the stream changes its size, a plain ResNet-50 at 160 still trains; where BatchNorm couples the samples, the
    map from all ends to one start is measured, and networks at 60 train while others at 14 fail.
    """
    profile = facts.profile
    if profile is None or facts.couples_samples:
        return False
    return profile.num_elements[0] == profile.num_elements[profile.ends[-1]]


def _advice(facts: Facts) -> str:
    around = surroundings(facts)
    if around.post_norm:
        return (
            "Use DeepNorm (alpha and beta), Admin or B2T initialisation, or Pre-LN: a Post-LN stack narrows with "
            "depth."
        )
    if around.has_skips:
        return "Scale the branches by 1/sqrt(number of branches) or start them at zero; widen the narrowest layer."
    return (
        "Add skips with normalised branches; or orthogonal initialisation with a nearly linear activation; or "
        "wider layers."
    )


DOC = RuleDoc(
    measures="""
κ_J = N / PR of the Jacobian J from the start to the end of the stream: N is the number of values per sample, PR the
participation ratio of the squared singular values, (Σ s²)² / Σ s⁴. It is estimated from K random unit cotangents v as
κ_J = 1 + (N + 2)/2 · Var(‖Jᵀv‖²)/Mean². 1 is an isometry; 40 means that one direction in 40 carries the gradient.""",
    why="""
The norm says how much gradient arrives, not how many directions it has. A deep tanh network near criticality, a plain
deep ReLU network and a collapsed Post-LN Transformer keep their gradient norm and cannot be trained, because nearly
all errors arrive as the same few patterns. On 186 training runs κ_J at initialisation told the failing ones better
than any other number (AUC 0.97, total decades 0.84).""",
    false_positives="""
κ_J alone does not decide: it is an error together with a gradient that changes along the depth (by a decade and a
half, under plain SGD by one; what one block changes alone is left out), together with tokens that are alike, or,
under plain SGD, with samples that are. Where the stream changes its size
(strided stages, patch merging) or BatchNorm couples the samples, it does not separate networks that train from
others, and nothing is reported. The estimate from 16 cotangents is good to about 35 % on one sample and 12 % on
eight. The levels come from small networks.""",
    example="""
```python
# D = +0.1, yet untrainable: 64 tanh layers at the critical scale
for layer in layers: nn.init.normal_(layer.weight, std=(1.76 / 64) ** 0.5)
```
The same network with orthogonal weights has the same D, κ_J near 1, and trains.""",
    advice="""
1. Skips with normalised branches.
2. Without skips: orthogonal weights and an activation that is nearly linear around zero.
3. Wider layers.""",
    references=(
        "Saxe et al. 2013, Exact solutions to the nonlinear dynamics of learning in deep linear networks "
        "(arXiv:1312.6120)",
        "Pennington et al. 2017, Resurrecting the sigmoid in deep learning through dynamical isometry "
        "(arXiv:1711.04735)",
    ),
)

RULE = Rule(
    code="GS108",
    name="anisotropic-jacobian",
    severity="error",
    summary="Few directions carry the gradient through the stream, whatever its norm.",
    thresholds=(
        levels.FAIL_ANISOTROPY,
        levels.FAIL_ANISOTROPY_SGD,
        levels.FAIL_ANISOTROPY_WITH_DECADES,
        levels.WARN_ANISOTROPY,
        levels.ANISOTROPY_WITH_DECADES,
        levels.ANISOTROPY_WITH_DECADES_SGD,
    ),
    check=check,
    doc=DOC,
)
