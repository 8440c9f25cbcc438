"""GS306: single activations far larger than the rest of the stream."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.rules import levels
from gradscope.rules.culprit import finding_at
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Report the first station whose peak reaches the level, at the last step at which peaks were measured."""
    values = facts.observed_later("activation_peak") or facts.observed("activation_peak")
    bad = [(place, value) for place, value in values.items() if value >= thresholds["peak"]]
    if not bad:
        return []
    (module, call), value = bad[0]
    return [
        finding_at(
            facts,
            "GS306",
            "warning",
            module,
            f"The largest activation of `{module}` is {value:.0f} times the root mean square ({len(bad)} of "
            f"{len(values)} stations).",
            {"activation_peak": value, "threshold_peak": thresholds["peak"], "stations": len(bad)},
            "Normalise branch outputs too (Peri-LN), use QK-norm or a z-loss; keep the stream in float32 or bfloat16.",
            call,
        )
    ]


DOC = RuleDoc(
    measures="""
max|h| / rms(h) of the residual stream at its stations. A Gaussian stream of a million values has a peak of about 5.""",
    why="""
A few huge channels dominate every norm they pass, hide the others in low precision, and make quantisation hard. They
grow in training before some runs diverge.""",
    false_positives="""
Many trained language models have massive activations and work. Sparse inputs (one-hot, zero
padding) have a small root mean square. Hence a warning.""",
    example="""
```python
x[:, :, 7] += 1000.0      # what some channels of a trained stream look like
```""",
    advice="""
1. Norm on the branch outputs (Peri-LN).
2. QK-norm, z-loss.
3. float32 or bfloat16 for the stream, never float16.""",
    references=(
        "Sun et al. 2024, Massive Activations in Large Language Models (arXiv:2402.17762)",
        "Kim et al. 2025, Peri-LN: Revisiting Normalization Layer in the Transformer Architecture (arXiv:2502.02732)",
    ),
)

RULE = Rule(
    code="GS306",
    name="massive-activations",
    severity="warning",
    summary="Single activations are far larger than the rest of the stream.",
    thresholds=(levels.PEAK,),
    check=check,
    doc=DOC,
)
