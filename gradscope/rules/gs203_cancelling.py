"""GS203: a branch whose gradient points against that of the skip, step after step."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.metrics.residual import Site
from gradscope.rules import levels
from gradscope.rules.finding import Finding, Severity
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.numbers import count
from gradscope.rules.sites import site_finding

LITTLE_LEFT = 0.01
"""Fraction of the skip's gradient below which a cancelling block is an error: two decades lost in one block."""


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Report the first addition that cancels at every watched step."""
    if not facts.steps:
        return []
    bad = [site for site in facts.sites if site.counted and _cancels(site, thresholds)]
    for step in facts.steps[1:] if bad else ():
        later = facts.sites_at(step)
        bad = [site for site in bad if _cancels(later[site.row], thresholds)]
    if not bad:
        return []
    site = bad[0]
    left = site.remaining_gradient or 0.0
    severity: Severity = "error" if left < LITTLE_LEFT else "warning"
    return [
        site_finding(
            facts,
            "GS203",
            severity,
            site,
            f"The gradient through the branch points against that of the skip (cosine {site.cosine:.2f}) and leaves "
            f"{left:.1%} of it, at every watched step ({count(len(bad), 'addition')}).",
            {
                "cosine": site.cosine,
                "backward_ratio": site.backward_ratio,
                "remaining": left,
                "threshold_cosine": thresholds["cosine"],
                "sites": len(bad),
            },
            "Look for a branch that subtracts its own input (x + (g(x) - x) is g(x)), a sign error, or tied weights.",
        )
    ]


def _cancels(site: Site, thresholds: Levels) -> bool:
    left = site.remaining_gradient
    return (
        site.cosine is not None
        and left is not None
        and site.cosine < thresholds["cosine"]
        and left < thresholds["remaining"]
    )


DOC = RuleDoc(
    measures="""
The cosine between the gradient that reaches x through the skip and the one that reaches it through the branch, and
what is left of the skip's gradient after both are added: sqrt(1 + r² + 2·r·c), with r the backward ratio and c the
cosine.""",
    why="""
"With a residual the gradient is at least 1" is not a law: f(x) = -x makes x + f(x) = 0 and its gradient exactly zero.
At initialisation the two gradients are orthogonal in every healthy wiring, so a steady opposition is a construction
fault.""",
    false_positives="""
Diffusion and flow models that predict a velocity against their input may cancel part of the skip on purpose late in
training; at initialisation they do not.""",
    example="""
```python
return x + (self.norm(x) - x)          # a residual in name: the x cancels
```""",
    advice="""
Find what subtracts the input, or the sign that is wrong.""",
    references=("He et al. 2016, Identity Mappings in Deep Residual Networks (arXiv:1603.05027)",),
)

RULE = Rule(
    code="GS203",
    name="branch-cancels-skip",
    severity="error",
    summary="A branch's gradient points against that of its skip.",
    thresholds=(levels.CANCELLING_COSINE, levels.CANCELLED_SHARE),
    check=check,
    doc=DOC,
)
