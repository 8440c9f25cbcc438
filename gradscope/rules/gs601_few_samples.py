"""GS601: normalisation statistics taken over too few values."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.rules import levels
from gradscope.rules.culprit import finding_at
from gradscope.rules.finding import Finding, Severity
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.numbers import count

ONE = 1
"""Values (count) of which mean and variance leave nothing: the output is the norm's bias whatever the input."""


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Report the norm with the fewest values per statistic and how many are below the level."""
    values = facts.observed("batch_samples")
    bad = [(place, int(value)) for place, value in values.items() if value < thresholds["samples"]]
    if not bad:
        return []
    (module, call), fewest = min(bad, key=lambda pair: pair[1])
    made_up = facts.provenance.inputs_synthetic
    severity: Severity = "error" if fewest <= ONE and not made_up else "warning"
    effect = (
        "its output does not depend on its input" if fewest <= ONE else "the statistic is mostly noise"
    )
    return [
        finding_at(
            facts,
            "GS601",
            severity,
            module,
            f"`{module}` normalises with statistics of {count(fewest, 'value')}: {effect} ({len(bad)} of "
            f"{len(values)} norms)." + (" The inputs were made up: yours may be larger." if made_up else ""),
            {"samples": fewest, "threshold_samples": thresholds["samples"], "norms": len(bad)},
            "Use a larger batch, GroupNorm or LayerNorm, or BatchNorm in eval mode with frozen statistics; check for "
            "a normalised axis of size one.",
            call,
        )
    ]


DOC = RuleDoc(
    measures="""
How many values each normalisation statistic is taken over: batch times positions for BatchNorm in training, channels
of a group times positions for GroupNorm, the normalised axes for LayerNorm and RMSNorm.""",
    why="""
The standard deviation of two values is 61 % off, of four 39 %, of eight 26 %. Over a single value it is zero and the
norm returns its bias: nothing below it gets a gradient. The running statistics then do not fit either.""",
    false_positives="""
gradscope may have made up a small batch or picture itself (see GS604): then it is a warning; give your own with
`--inputs`. BatchNorm in eval mode
takes no statistics and is not counted.""",
    example="""
```python
nn.BatchNorm1d(64)(torch.randn(2, 64))       # every value becomes +1 or -1
```""",
    advice="""
1. A larger batch.
2. GroupNorm or LayerNorm.
3. Frozen statistics when fine-tuning.""",
    references=(
        "Wu & He 2018, Group Normalization (arXiv:1803.08494)",
        "Ioffe 2017, Batch Renormalization (arXiv:1702.03275)",
    ),
)

RULE = Rule(
    code="GS601",
    name="few-samples",
    severity="error",
    summary="Normalisation statistics are taken over too few values.",
    thresholds=(levels.FEW_SAMPLES,),
    check=check,
    doc=DOC,
)
