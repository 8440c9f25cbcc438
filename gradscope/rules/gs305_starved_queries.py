"""GS305: queries and keys get next to no gradient while values learn."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from gradscope.metrics.attention import AttentionBalance
from gradscope.metrics.facts import Facts
from gradscope.rules import levels
from gradscope.rules.culprit import finding_at, surroundings
from gradscope.rules.finding import Finding, Severity
from gradscope.rules.gs301_collapse import collapsed
from gradscope.rules.kind import Levels, Rule, RuleDoc

UNIFORM_LOGIT = 0.01
"""Largest attention logit below which attention is uniform: no key gets more than a hundredth above its share."""


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Judge the ratio at the first step at which all attentions have one (zero-initialised designs wake up later)."""
    balances = [b for b in facts.attention_balances if b.worst_log10 is not None]
    if not balances:
        return []
    values = [b.worst_log10 for b in balances if b.worst_log10 is not None]
    middle = median(values)
    low = [b for b in balances if _low(b, thresholds["warn_log10_ratio"])]
    if not low:
        return []
    fails = [b for b in balances if _low(b, thresholds["log10_ratio"])]
    for_good = collapsed(facts)
    severity: Severity = "error" if for_good and len(fails) * 2 > len(balances) else "warning"
    first = (fails or low)[0]
    cannot = "attention cannot learn where to look" if for_good else "attention learns late where to look"
    return [
        finding_at(
            facts,
            "GS305",
            severity,
            first.module,
            f"Queries and keys of `{first.module}` get 10^{first.worst_log10:.1f} of the gradient of its values "
            f"({len(low)} of {len(balances)} attention layers, median 10^{middle:.1f}): {cannot}.",
            {
                "log10_ratio": first.worst_log10,
                "median_log10_ratio": middle,
                "threshold_log10_ratio": thresholds["log10_ratio" if fails else "warn_log10_ratio"],
                "attentions": len(balances),
                "starved": len(low),
            },
            _advice(facts) if for_good else _advice_for_now(facts),
        )
    ]


def _advice(facts: Facts) -> str:
    if not surroundings(facts).has_skips:
        return "Add skips around attention: without them tokens become alike, and queries and keys lose their gradient."
    return (
        "The tokens have become alike (see GS301): DeepNorm, branches scaled by 1/sqrt(L), Pre-LN, or a stronger "
        "positional signal."
    )


def _advice_for_now(facts: Facts) -> str:
    """Name what starves them where it is no collapse: what attention reads is tiny or alike, or its choice is hard."""
    peaks, entropies = facts.observed("attention_logit_max"), facts.observed("attention_entropy")
    if entropies and min(entropies.values()) <= levels.ENTROPY.value:
        return "Attention is a hard choice (see GS304): divide the logits by sqrt(head size), or normalise both."
    if peaks and max(map(abs, peaks.values())) < UNIFORM_LOGIT:
        return (
            "The logits are next to zero, so that attention is uniform: queries and keys are tiny, and wake up as the "
            "weights grow. A norm before attention, or larger weights, gives them a gradient from the start."
        )
    return "The tokens that attention reads hardly differ, or hardly matter to the loss yet: see whether inputs do."


def _low(balance: AttentionBalance, limit: float) -> bool:
    return balance.worst_log10 is not None and balance.worst_log10 <= limit


DOC = RuleDoc(
    measures="""
log10(‖dW_q‖ / ‖dW_v‖) and the same for keys, per attention layer, at step 0. -0.1 to about -3 is normal; -8 is the
rounding noise of float32. Which weights make queries, keys and values is read off the graph (whose product is
softmaxed, and what that weighs), not off names; of a fused weight the rows of each are told apart by autograd.""",
    why="""
If all tokens are alike, it makes no difference where attention looks, so queries and keys get no gradient and
attention stays random, while values, and everything else, train. The parameter norms of the layer as a whole look
healthy.""",
    false_positives="""
A single layer below the level (the first or the last one) is common and only warns; an error needs the majority of
the layers, and tokens that have become alike (GS301). Without that the ratio says that attention does not matter yet:
a network without a norm before attention starts with tiny, uniform logits (10^-7 in MobileBERT at a small size) and
trains. Attention over a single key has nothing to choose: its query gradients are exactly zero and not judged
here. In a script that is watched as it runs, fused query-key-value weights are not taken apart.""",
    example="""
```python
for block in blocks:
    x = block.attention(x)          # no skip: by layer 16 queries get 1e-8 of what values get
```""",
    advice="""
See GS301: skips; depth-scaled branches; Pre-LN; a stronger positional signal.""",
    references=(
        "Noci et al. 2022, Signal Propagation in Transformers and the Role of Rank Collapse (arXiv:2206.03126)",
    ),
)

RULE = Rule(
    code="GS305",
    name="starved-queries",
    severity="error",
    summary="Queries and keys get next to no gradient while values learn.",
    thresholds=(levels.FAIL_QUERY_TO_VALUE, levels.WARN_QUERY_TO_VALUE),
    check=check,
    doc=DOC,
)
