"""GS204: constants on the skip that multiply over depth, or DeepNorm's alpha without its beta."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from gradscope.metrics.facts import Facts
from gradscope.metrics.residual import Site
from gradscope.rules import levels
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.numbers import factor, signed
from gradscope.rules.sites import site_finding

ALPHA_TOLERANCE = 0.03
"""Relative deviation from (2N)^(1/4) within which a skip factor is taken for DeepNorm's alpha."""

BETA_TOLERANCE = 1.8
"""Mean gain of the branch weights over DeepNorm's beta above which beta was left out (factor). Without it the factor is
1 / beta: 2.2 at 3 blocks and more in deeper stacks; He initialisation in place of Xavier makes 1.4 to 1.7."""


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Report unnormalised constants that multiply, else an alpha without its beta."""
    sites = [site for site in facts.sites if site.counted and site.on_stream]
    scaled = [site for site in sites if site.skip_scale is not None and site.skip_scale not in (0.0, 1.0)]
    free = [site for site in scaled if site.placement != "post"]
    decades = math.fsum(math.log10(abs(site.skip_scale or 1.0)) for site in free)
    if free and abs(decades) >= thresholds["decades"]:
        return [_multiplying(facts, free, decades, thresholds)]
    return _alpha_without_beta(facts, [site for site in scaled if site.placement == "post"], len(sites))


def _multiplying(facts: Facts, sites: Sequence[Site], decades: float, thresholds: Levels) -> Finding:
    first = sites[0]
    return site_finding(
        facts,
        "GS204",
        "warning",
        first,
        f"Constant factors on {len(sites)} skips (here {first.skip_scale:g}) multiply over depth: along the skips "
        f"alone stream and gradient become {factor(decades)} times {'smaller' if decades < 0 else 'larger'} "
        f"({signed(decades)} decades), and what arrives has come through the branches.",
        {
            "skip_scale": first.skip_scale,
            "decades": decades,
            "threshold_decades": thresholds["decades"],
            "sites": len(sites),
        },
        "Leave the skip an unscaled identity and scale the branch instead; or normalise after every addition, as "
        "DeepNorm does.",
    )


def _alpha_without_beta(facts: Facts, sites: Sequence[Site], num_sites: int) -> list[Finding]:
    """Recognise alpha = (2N)^(1/4) of N blocks of two additions, and look for beta = (8N)^(-1/4) on the weights."""
    blocks = num_sites / 2
    if blocks < 1:
        return []
    alpha, beta = (2 * blocks) ** 0.25, (8 * blocks) ** -0.25
    deep = [site for site in sites if abs((site.skip_scale or 1.0) / alpha - 1) < ALPHA_TOLERANCE]
    gain = _mean_branch_gain(facts, deep)
    if len(deep) * 2 < num_sites or gain is None or gain < BETA_TOLERANCE * beta:
        return []
    return [
        site_finding(
            facts,
            "GS204",
            "warning",
            deep[0],
            f"The skips carry DeepNorm's alpha ({alpha:.2f} for {blocks:g} blocks), but the branch weights have a "
            f"Xavier gain of {gain:.2f} where its beta is {beta:.2f}: half of the method is missing.",
            {"skip_scale": alpha, "branch_gain": gain, "beta": beta, "sites": len(deep)},
            "Initialise value, output and both feed-forward weights with xavier_normal_(gain=beta), queries and "
            "keys with gain 1.",
        )
    ]


def _mean_branch_gain(facts: Facts, sites: Sequence[Site]) -> float | None:
    """Return the mean Xavier gain, rms(W) / sqrt(2 / (n_in + n_out)), of the branches, queries and keys left out."""
    if not facts.steps:
        return None
    branches = tuple(name for site in sites for name in site.branches)
    norms = facts.weight_norms.get(facts.steps[0], {})
    gains = []
    for p in facts.trainable:
        norm = norms.get(p.row)
        inside = any(p.module == name or p.module.startswith(name + ".") for name in branches)
        if norm and inside and len(p.shape) == 2 and p.role not in ("query", "key", "query_key_value"):  # noqa: PLR2004
            gains.append(norm / math.sqrt(p.num_elements) / math.sqrt(2 / sum(p.shape)))
    return fmean(gains) if gains else None


DOC = RuleDoc(
    measures="""
The product of all constant factors on the skips of the stream, in decades, for additions that are not followed by a
norm. For additions that are (Post-LN), whether a skip factor of (2N)^¼, which is DeepNorm's α, comes with its β =
(8N)^-¼ on the branch weights.""",
    why="""
½(x + f(x)) looks harmless, but twenty of them leave a millionth of the stream and of the gradient. A factor above one
grows the same way: x·α + f(x) *without* the norm of DeepNorm multiplies by 1e50 over 50 blocks. α without β only
weakens the branches.""",
    false_positives="""
A factor on the skip in front of a norm cancels and is not counted. Factors that are learnt or depend on the input are
not constants and are not counted either.""",
    example="""
```python
return (x + self.f(x)) / 2              # 0.5 ** 20 = 1e-6 over 20 blocks
```""",
    advice="""
1. Leave the skip alone and scale the branch.
2. DeepNorm: norm(α·x + f(x)) *and* Xavier gain β on value, output and feed-forward weights.""",
    references=(
        "He et al. 2016, Identity Mappings in Deep Residual Networks (arXiv:1603.05027), section on constant scaling",
        "Wang et al. 2022, DeepNet: Scaling Transformers to 1,000 Layers (arXiv:2203.00555)",
    ),
)

RULE = Rule(
    code="GS204",
    name="scaled-skip",
    severity="warning",
    summary="Constants on the skip multiply over depth, or DeepNorm's alpha comes without its beta.",
    thresholds=(levels.SKIP_DECADES,),
    check=check,
    doc=DOC,
)
