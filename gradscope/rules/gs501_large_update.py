"""GS501: optimizer steps that replace a good part of the weights."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.columns import middle
from gradscope.metrics.facts import Facts
from gradscope.rules import levels
from gradscope.rules.culprit import finding_at
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.updates import updates_at_last_step


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Judge the median update-to-weight ratio of the matrices at the last watched step."""
    ratios = updates_at_last_step(facts)
    usual = middle(ratio for _, ratio in ratios)
    if usual is None or usual < thresholds["update_to_weight"]:
        return []
    worst, value = max(ratios, key=lambda pair: pair[1])
    return [
        finding_at(
            facts,
            "GS501",
            "warning",
            worst.module,
            f"One step changes half of the weight matrices by {usual:.0%} or more of their norm (most in "
            f"`{worst.name}`: "
            f"{value:.0%}); 0.01 % to 1 % is normal.",
            {
                "update_to_weight": usual,
                "worst_update_to_weight": value,
                "threshold_update_to_weight": thresholds["update_to_weight"],
                "lr": facts.learning_rate,
                "step": max(facts.update_norms),
            },
            "Lower the learning rate, warm it up, or clip the gradient.",
        )
    ]


DOC = RuleDoc(
    measures="""
‖W_after − W_before‖ / ‖W‖ of every weight matrix, of the step that the optimizer really took, at the last watched
step; judged by the median. Biases, gains and matrices that start at zero do not count.""",
    why="""
When a tenth of the weights is replaced in one step, the gradient it was computed for says little about where the step
ends. Training jumps, and warm-up or a lower rate is needed.""",
    false_positives="""
Adam's first steps are always full learning-rate steps, whatever the gradient; tiny weights (a standard deviation of
0.02 or less) make the ratio large. Small toy networks tolerate a tenth.""",
    example="""
```python
torch.optim.Adam(model.parameters(), lr=0.1)
```""",
    advice="""
1. Lower learning rate.
2. Warm-up.
3. Gradient clipping (for SGD).""",
    references=("Liu et al. 2020, Understanding the Difficulty of Training Transformers (arXiv:2004.08249)",),
)

RULE = Rule(
    code="GS501",
    name="update-too-large",
    severity="warning",
    summary="Optimizer steps replace a good part of the weights.",
    thresholds=(levels.LARGE_UPDATE,),
    check=check,
    doc=DOC,
)
