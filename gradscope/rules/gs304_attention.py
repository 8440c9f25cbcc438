"""GS304: attention that has become a hard choice, or logits on their way there."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.rules import levels
from gradscope.rules.culprit import finding_at
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc

METRICS = ("attention_entropy", "attention_logit_max")

ADVICE = (
    "Divide the logits by sqrt(head size), normalise queries and keys (QK-norm), lower the learning rate or warm it "
    "up, or cap the logits."
)


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Judge entropy and logits at the last step at which they were measured."""
    step = max((s for m in METRICS for s in facts.observations.get(m, {})), default=None)
    entropy = facts.observed("attention_entropy", step)
    low = [(place, value) for place, value in entropy.items() if value <= thresholds["entropy"]]
    if low:
        (module, call), value = min(low, key=lambda pair: pair[1])
        return [
            finding_at(
                facts, "GS304", "warning", module,
                f"Attention in `{module}` looks at single keys: its entropy is {value:.2f} of that of uniform "
                f"attention ({len(low)} of {len(entropy)} attention layers).",
                {"attention_entropy": value, "threshold_entropy": thresholds["entropy"], "step": step,
                 "places": len(low)},
                ADVICE, call,
            )
        ]  # fmt: skip
    logits = facts.observed("attention_logit_max", step)
    high = [(place, value) for place, value in logits.items() if value >= thresholds["logit"]]
    if not high:
        return []
    (module, call), value = max(high, key=lambda pair: pair[1])
    return [
        finding_at(
            facts, "GS304", "warning", module,
            f"The largest attention logit of `{module}` is {value:.0f} ({len(high)} of {len(logits)} attention "
            "layers).",
            {"attention_logit_max": value, "threshold_logit": thresholds["logit"], "step": step, "places": len(high)},
            ADVICE, call,
        )
    ]  # fmt: skip


DOC = RuleDoc(
    measures="""
The mean entropy of attention rows over log(number of visible keys), 1 for uniform attention and 0 for a hard choice,
and the largest logit before the softmax, at the last watched step.""",
    why="""
When logits grow, the softmax turns into a hard choice whose derivative is zero; training then jumps or diverges.
Large models lose runs to it.""",
    false_positives="""
Forgetting 1/sqrt(head size) lowers the entropy and raises the query gradients tenfold, yet such networks usually
still train. Trained models have heads that look at one token on purpose (previous token, separators). Hence a
warning.""",
    example="""
```python
scores = q @ k.transpose(-1, -2)           # / head_dim ** 0.5 was forgotten
```""",
    advice="""
1. 1/sqrt(head size).
2. QK-norm; with output norms it is required.
3. Lower learning rate, warm-up, logit cap.""",
    references=(
        "Dehghani et al. 2023, Scaling Vision Transformers to 22 Billion Parameters (arXiv:2302.05442)",
        "Wortsman et al. 2023, Small-scale proxies for large-scale Transformer training instabilities "
        "(arXiv:2309.14322)",
    ),
)

RULE = Rule(
    code="GS304",
    name="attention-collapse",
    severity="warning",
    summary="Attention has become a hard choice, or its logits are on their way there.",
    thresholds=(levels.ENTROPY, levels.LOGIT),
    check=check,
    doc=DOC,
)
