"""GS205: a deep stack, or several attention layers, without a single skip."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.rules import levels
from gradscope.rules.culprit import depth_culprit, finding_at, station_module
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.numbers import count


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Count blocks and attention layers of a network in which no residual addition was found."""
    profile = facts.profile
    if any(site.kind for site in facts.sites) or profile is None or facts.runs_through_time:
        return []
    attentions = _attentions(facts)
    deep, attentive = profile.num_blocks >= thresholds["blocks"], attentions >= thresholds["attentions"]
    if not deep and not attentive:
        return []
    module = station_module(depth_culprit(profile, profile.decades or 0.0).station)
    what = count(attentions, "attention layer") if attentive else count(profile.num_blocks, "block")
    why = (
        "without skips attention averages its tokens into one"
        if attentive
        else "without skips such depth trains only from a carefully tuned start"
    )
    return [
        finding_at(
            facts,
            "GS205",
            "warning",
            module,
            f"{what} and not one skip: {why}.",
            {"num_blocks": profile.num_blocks, "attentions": attentions, "residual_additions": 0},
            "Add skips, x + f(norm(x)), around every attention and feed-forward part (or every one or two layers).",
        )
    ]


def _attentions(facts: Facts) -> int:
    """Count attention layers by their value (or fused) projections, else by modules of that role."""
    fused = {p.module for p in facts.parameters if p.role in ("value", "query_key_value") and p.is_matrix}
    modules = [m for m in facts.modules.values() if m.role == "attention" and m.called]
    inner = [m for m in modules if not any(o.name.startswith(m.name + ".") for o in modules)]
    return max(len(fused), len(inner))


DOC = RuleDoc(
    measures="""
Whether a network with many blocks along its stream, or with several attention layers, has any residual addition at
all. Skips are found in the autograd graph, whatever they look like in code.""",
    why="""
Attention without skips averages tokens: after a few layers they are all alike, and no initialisation repairs that.
Plain stacks of 30 and more layers train only when initialised at the critical scale, and slower.""",
    false_positives="""
Orthogonal or mean-field initialisation can train plain stacks of great depth; see whether GS101, GS102 and GS108 are
silent. The rule warns, it does not decide the verdict of a plain stack.""",
    example="""
```python
for layer in self.layers:
    x = layer(x)          # x + layer(x) was meant
```""",
    advice="""
x + f(norm(x)) around every attention and every feed-forward part.""",
    references=(
        "He et al. 2015, Deep Residual Learning for Image Recognition (arXiv:1512.03385)",
        "Dong et al. 2021, Attention is Not All You Need: Pure Attention Loses Rank Doubly Exponentially "
        "(arXiv:2103.03404)",
    ),
)

RULE = Rule(
    code="GS205",
    name="no-skips",
    severity="warning",
    summary="A deep stack, or several attention layers, without a single skip.",
    thresholds=(levels.PLAIN_DEPTH, levels.ATTENTION_DEPTH),
    check=check,
    doc=DOC,
)
