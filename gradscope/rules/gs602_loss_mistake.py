"""GS602: a loss that is fed with something else than it expects."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.rules import levels
from gradscope.rules.culprit import finding_at
from gradscope.rules.finding import Finding, Severity
from gradscope.rules.kind import Levels, Rule, RuleDoc

MISTAKES = {
    "probabilities_as_logits": (
        "The loss applies its own softmax or sigmoid to what already are probabilities: its gradient shrinks and its "
        "best value stays far from zero",
        "Return logits from the model and leave the softmax to the loss.",
    ),
    "unnormalised_log_probabilities": (
        "nll_loss expects log-probabilities and gets something else: it can fall below zero without limit",
        "Apply log_softmax first, or use cross_entropy on the logits.",
    ),
}


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Report each mistake once, and a cross-entropy over a single class."""
    found = []
    for metric, (mistake, advice) in MISTAKES.items():
        values = facts.observed(metric)
        bad = [(place, value) for place, value in values.items() if value >= thresholds["fraction"]]
        if bad:
            (module, call), value = bad[0]
            evidence = {metric: value, "threshold_fraction": thresholds["fraction"]}
            message = f"{mistake} ({value:.0%} of the rows)."
            found.append(_finding(facts, "warning", module, message, evidence, advice, call))
    single = [place for place, value in facts.observed("loss_classes").items() if value == 1.0]
    if single:
        module, call = single[0]
        message = "The cross-entropy is taken over one class: it is zero for every output, and so is its gradient."
        advice = "Use binary_cross_entropy_with_logits for one output, or two classes."
        found.append(_finding(facts, "error", module, message, {"loss_classes": 1}, advice, call))
    return found


def _finding(
    facts: Facts, severity: Severity, module: str, message: str, evidence: dict[str, float], advice: str, call: int
) -> Finding:
    return finding_at(facts, "GS602", severity, module, message, evidence, advice, call)


DOC = RuleDoc(
    measures="""
What is handed to the loss functions: whether rows given to `cross_entropy`, `log_softmax` or
`binary_cross_entropy_with_logits` already are probabilities, whether rows given to `nll_loss` are no
log-probabilities, and over how many classes a cross-entropy is taken.""",
    why="""
None of these raises an error. Softmax of a softmax squeezes the logits into [0, 1]: with ten classes the loss cannot
fall below 1.46, and the gradient is a fraction of what it should be. Cross-entropy over one class is always zero.""",
    false_positives="""
A model whose logits happen to lie in [0, 1] and sum to one. Single logits in [0, 1] count only where a sigmoid or the
like made them: those of a fresh discriminator often all lie there. Distillation losses that use `log_softmax` on
probabilities on purpose do not exist in practice.""",
    example="""
```python
return torch.softmax(self.head(x), -1)       # and then F.cross_entropy(output, target)
```""",
    advice="""
Return logits; `cross_entropy` is log_softmax and nll_loss in one.""",
    references=("PyTorch documentation, torch.nn.CrossEntropyLoss: the input is expected to hold unnormalized logits",),
)

RULE = Rule(
    code="GS602",
    name="loss-mistake",
    severity="error",
    summary="A loss is fed with something else than it expects, such as a softmax twice.",
    thresholds=(levels.PROBABILITIES,),
    check=check,
    doc=DOC,
)
