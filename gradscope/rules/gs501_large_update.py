"""GS501: optimizer steps that replace a good part of the weights."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.columns import middle
from gradscope.metrics.facts import Facts
from gradscope.metrics.weights import Parameter
from gradscope.rules import levels
from gradscope.rules.culprit import finding_at
from gradscope.rules.finding import Finding, Severity
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.updates import steps_are_real, updates_at

SIGNS = 2
"""How many decide, of three: a first step that outweighs the weights, a later one that replaces half, a rising loss."""


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Judge the median update-to-weight ratio of the matrices at the first and at the later watched steps."""
    if not facts.update_norms:
        return []
    first, last = min(facts.update_norms), max(facts.update_norms)
    usual = {step: _median(updates_at(facts, step)) for step in facts.update_norms}
    most = max((step for step in usual if step != first), key=lambda step: usual[step], default=first)
    outweighs = usual[first] >= thresholds["first_update_to_weight"]
    replaces = most != first and usual[most] >= thresholds["later_update_to_weight"]
    grown = _loss_ratio(facts)
    rises = grown >= thresholds["loss_ratio"]
    if steps_are_real(facts) and sum((outweighs, replaces, rises)) >= SIGNS:
        then = f", and the loss has since been {grown:.3g} times what it was" if rises else ""
        level = "first_update_to_weight" if outweighs else "later_update_to_weight"
        extra = {"loss_ratio": grown, "threshold_update_to_weight": thresholds[level]}
        return [_finding(facts, first if outweighs else most, "error", then, extra)]
    if usual[last] >= thresholds["update_to_weight"]:
        extra = {"threshold_update_to_weight": thresholds["update_to_weight"]}
        return [_finding(facts, last, "warning", "", extra)]
    return []


def _median(ratios: Sequence[tuple[Parameter, float]]) -> float:
    return middle(ratio for _, ratio in ratios) or 0.0


def _loss_ratio(facts: Facts) -> float:
    """Return the largest later loss over the first one; 0 where they are not comparable (no loss, zero or below)."""
    known = [facts.losses.get(step) for step in facts.steps]
    if len(known) < 2 or any(loss is None or loss <= 0.0 for loss in known):  # noqa: PLR2004 - one and a later one
        return 0.0
    losses = [loss for loss in known if loss is not None]
    return max(losses[1:]) / losses[0]


def _finding(facts: Facts, step: int, severity: Severity, then: str, extra: dict[str, float]) -> Finding:
    ratios = updates_at(facts, step)
    usual = _median(ratios)
    worst, value = max(ratios, key=lambda pair: pair[1])
    return finding_at(
        facts,
        "GS501",
        severity,
        worst.module,
        f"One step changes half of the weight matrices by {usual:.0%} or more of their norm (most in `{worst.name}`: "
        f"{value:.0%}){then}; 0.01 % to 1 % is normal.",
        {"update_to_weight": usual, "worst_update_to_weight": value, "lr": facts.learning_rate, "step": step,
         "own_rate": not steps_are_real(facts), **extra},
        "Lower the learning rate, warm it up, or clip the gradient.",
    )


DOC = RuleDoc(
    measures="""
‖W_after − W_before‖ / ‖W‖ of every weight matrix, of the step that the optimizer really took, at the last watched
step; judged by the median. Biases, gains and matrices that start at zero do not count. An error where the first step
outweighs the weights, or a later one half of them, and the loss has risen since, or where both do.""",
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
    thresholds=(levels.LARGE_UPDATE, levels.REPLACING_UPDATE, levels.LATER_UPDATE, levels.RISING_LOSS),
    check=check,
    doc=DOC,
)
