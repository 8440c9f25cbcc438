"""GS201: a branch so much larger than the stream that the skip no longer carries anything."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.rules import levels
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.numbers import count
from gradscope.rules.sites import site_finding

FEWEST_BEFORE = 2
"""Additions (count) at the start of the stream that may be large: a small embedding under its first attention and
feed-forward is how GPT-like models begin."""


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Report the first swamped addition and how many there are."""
    later = [site for site in facts.sites if site.counted and site.on_stream][FEWEST_BEFORE:]
    bad = [site for site in later if (site.forward_ratio or 0.0) > thresholds["forward_ratio"]]
    if not bad:
        return []
    first = bad[0]
    return [
        site_finding(
            facts,
            "GS201",
            "warning",
            first,
            f"The branch is {first.forward_ratio:.0f} times as large as the stream it is added to"
            f" ({count(len(bad), 'addition')} like it): the skip carries next to nothing.",
            {
                "forward_ratio": first.forward_ratio,
                "backward_ratio": first.backward_ratio,
                "threshold_forward_ratio": thresholds["forward_ratio"],
                "sites": len(bad),
            },
            "Normalise what the branch reads, scale its last layer by 1/sqrt(number of branches), or start it at "
            "zero.",
        )
    ]


DOC = RuleDoc(
    measures="""
The forward ratio ‖f(x)‖ / ‖αx‖ of every residual addition, both as they are added, at step 0. The first block's
additions are left out.""",
    why="""
A residual network is safe as long as the skip carries a good part of the stream. With a branch ten times as large the
sum is the branch: the network behaves like a plain stack of that depth, in signal and in gradient.""",
    false_positives="""
Small embeddings (standard deviation 0.02) are swamped by the first block of any GPT-like model; that is why the first
block does not count. In Post-LN and Peri-LN a ratio near one is normal.""",
    example="""
```python
nn.init.normal_(block.fc2.weight, std=1.0)     # forgotten fan-in: the branch is sqrt(width) times the stream
```""",
    advice="""
1. x + f(norm(x)).
2. Divide the last layer of each branch by sqrt(number of branches), or start it at zero.""",
    references=(
        "De & Smith 2020, Batch Normalization Biases Residual Blocks Towards the Identity Function (arXiv:2002.10444)",
        "Liu et al. 2020, Understanding the Difficulty of Training Transformers (arXiv:2004.08249)",
    ),
)

RULE = Rule(
    code="GS201",
    name="branch-swamps-stream",
    severity="warning",
    summary="A branch is so much larger than the stream that the skip no longer carries anything.",
    thresholds=(levels.WARN_BRANCH,),
    check=check,
    doc=DOC,
)
