"""GS605: targets of a regression that are far larger than the outputs."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.rules.culprit import finding_at
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.levels import FAR_TARGETS


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Compare the size of the targets with that of the outputs, after the watched steps."""
    origin = facts.provenance
    if not facts.steps or origin.loss_synthetic or origin.inputs_synthetic:
        return []
    ratios = facts.observed("target_to_output", facts.steps[-1]).values()
    if not ratios or max(ratios) < thresholds["ratio"]:
        return []
    return [
        finding_at(
            facts,
            "GS605",
            "warning" if facts.rescales_gradients else "info",
            "",
            f"The targets of the loss are {max(ratios):.2g} times as large as the outputs: before it learns anything, "
            "training has to carry the outputs that far.",
            {"target_to_output": max(ratios), "threshold_ratio": thresholds["ratio"]},
            "Normalise the targets: subtract their mean and divide by their standard deviation, and undo it on the "
            "outputs when they are used.",
        )
    ]


DOC = RuleDoc(
    measures="""
The norm of the targets over that of the outputs, as `mse_loss`, `l1_loss`, `smooth_l1_loss` and `huber_loss` get them,
at the last watched step.""",
    why="""
A fresh network gives numbers of order one. Adam changes a weight by at most its learning rate, so targets in the
hundreds (a price, a temperature in Kelvin, a coordinate in pixels) are thousands of steps away, in which nothing but
the last layer's size is learnt; plain SGD takes larger steps for it, or diverges.""",
    false_positives="""
A loss written out by hand is not seen. Inputs and losses that were made up are not judged. Under plain SGD it is a
remark only: of networks with targets up to 300 times as large all trained at a smaller rate.""",
    example="""
```python
loss = F.mse_loss(model(x), price)          # price in the hundred thousands
```""",
    advice="""
Normalise the targets, or let the last layer start at their mean and scale.""",
    references=("LeCun et al. 1998, Efficient BackProp: targets within the range of the outputs",),
)

RULE = Rule(
    code="GS605",
    name="far-targets",
    severity="warning",
    summary="The targets of a regression are far larger than the outputs.",
    thresholds=(FAR_TARGETS,),
    check=check,
    doc=DOC,
)
