"""GS403: residual sums that the branch does not change, because it is below the stream's rounding."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.rules import levels
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.numbers import count
from gradscope.rules.sites import site_finding


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Report the first addition that absorbs too much in the dtype it is taken in."""
    absorbed = facts.observed("absorption")
    sites = [site for site in facts.sites if site.counted]
    found = [(site, absorbed[site.name, site.call]) for site in sites if (site.name, site.call) in absorbed]
    bad = [(site, value) for site, value in found if value >= thresholds["fraction"]]
    if not bad:
        return []
    site, value = bad[0]
    opening = all(one.kind in ("scaled", "gated") for one, _ in bad)
    return [
        site_finding(
            facts,
            "GS403",
            "info" if opening else "warning",
            site,
            f"{value:.0%} of the sum's elements are the stream's, bit for bit: the branch is below its rounding "
            f"({len(bad)} of {count(len(found), 'addition')} like it).",
            {
                "absorption": value,
                "threshold_fraction": thresholds["fraction"],
                "forward_ratio": site.forward_ratio,
                "sites": len(bad),
            },
            "Nothing yet: the factor in front of the branch is learnt and starts small on purpose."
            if opening
            else "Keep the residual stream in float32 (and check the dtype at run time), or use stochastic rounding.",
        )
    ]


DOC = RuleDoc(
    measures="""
Per residual addition: the fraction of elements with x + f(x) == x although f(x) ≠ 0, in the dtype in which the sum is
taken. The metrics give the same for bfloat16 and float16.""",
    why="""
bfloat16 has 8 significant bits. A branch of 1 % of the stream leaves 17 % of the elements untouched, one of 0.1 %
leaves 78 % (float16: 2 % and 21 %). Small corrections of deep layers are lost, always toward doing nothing.""",
    false_positives="""
Branches that start tiny on purpose (LayerScale, gates) are absorbed at first and grow out of it: information. Whether
absorption costs quality in practice is disputed. Hence a warning.""",
    example="""
```python
x = torch.ones(1000, dtype=torch.bfloat16)
for _ in range(1000): x = x + 1e-3         # still 1
```""",
    advice="""
A float32 residual stream, or stochastic rounding.""",
    references=("IEEE 754: x + f rounds to x when |f| is below half a unit in the last place of x",),
)

RULE = Rule(
    code="GS403",
    name="residual-absorption",
    severity="warning",
    summary="A residual sum loses its branch to rounding.",
    thresholds=(levels.WARN_ABSORPTION,),
    check=check,
    doc=DOC,
)
