"""GS202: branches that add next to nothing to the stream, after some steps as well."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.metrics.residual import Site
from gradscope.rules import levels
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.numbers import count
from gradscope.rules.sites import site_finding


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Report the first idle addition at the last watched step and how many there are."""
    if not facts.steps:
        return []
    sites = [s for s in facts.sites_at(facts.steps[-1]) if s.counted and s.on_stream and s.branch_norm]
    bad = [site for site in sites if _idle(site, thresholds["forward_ratio"])]
    if not bad:
        return []
    first = bad[0]
    opening = first.kind in ("scaled", "gated")
    return [
        site_finding(
            facts,
            "GS202",
            "info",
            first,
            f"The branch adds {first.forward_ratio:.1e} of the stream it is added to"
            f" ({len(bad)} of {count(len(sites), 'addition')} like it).",
            {
                "forward_ratio": first.forward_ratio,
                "threshold_forward_ratio": thresholds["forward_ratio"],
                "sites": len(bad),
                "step": facts.steps[-1],
            },
            (
                "Nothing, if the factor in front of it is learnt (LayerScale, gates): it starts small on purpose."
                if opening
                else "Check for a stream that grows without bound (final layers of a deep Pre-LN stack: LayerNorm "
                "Scaling, Mix-LN or Peri-LN) or for a branch that is scaled down twice."
            ),
        )
    ]


def _idle(site: Site, limit: float) -> bool:
    return site.forward_ratio is not None and site.forward_ratio < limit


DOC = RuleDoc(
    measures="""
The forward ratio ‖f(x)‖ / ‖αx‖ of every residual addition at the last watched step. Branches that are exactly zero
are not counted (see GS109 and GS105).""",
    why="""
A block that adds a hundredth of the stream can be removed without a trace. In deep Pre-LN networks the stream grows
with depth while every branch stays the same size, so that the last third of the blocks does little.""",
    false_positives="""
LayerScale (1e-5, 1e-6), gates with a negative bias and zero-initialised branches start idle on purpose and open
during training. That is why this is information.""",
    example="""
```python
self.gamma = nn.Parameter(1e-6 * torch.ones(dim))      # LayerScale of a deep network: idle at first, by design
```""",
    advice="""
1. Learnt factor: nothing.
2. Deep Pre-LN: LayerNorm Scaling (without the 1/sqrt(2L) initialisation), Mix-LN, Peri-LN.
3. Otherwise: look for a branch that is scaled down twice.""",
    references=(
        "Sun et al. 2025, The Curse of Depth in Large Language Models (arXiv:2502.05795)",
        "Touvron et al. 2021, Going deeper with Image Transformers (arXiv:2103.17239)",
        "Veit et al. 2016, Residual Networks Behave Like Ensembles of Relatively Shallow Networks (arXiv:1605.06431)",
    ),
)

RULE = Rule(
    code="GS202",
    name="idle-branch",
    severity="info",
    summary="A branch adds next to nothing to the stream.",
    thresholds=(levels.IDLE_BRANCH,),
    check=check,
    doc=DOC,
)
