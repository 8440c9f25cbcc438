"""GS307: attention whose weights are normalised over samples or heads instead of keys."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.rules.culprit import finding_at
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc


def check(facts: Facts, _: Levels) -> Sequence[Finding]:
    """Report the first such attention and how many there are."""
    found = facts.observed("attention_softmax_axis")
    if not found:
        return []
    (module, call), axis = next(iter(found.items()))
    over = "the samples of the batch" if axis == 0 else f"axis {axis:.0f}"
    return [
        finding_at(
            facts,
            "GS307",
            "warning",
            module,
            f"The softmax of the attention in `{module or 'the model'}` runs over {over}, so the weights of a query do "
            f"not sum to one over its keys ({len(found)} such softmax{'' if len(found) == 1 else 'es'}).",
            {"axis": int(axis), "attentions": len(found)},
            "Write softmax(scores, dim=-1). Without dim, three axes fall back to the first and four to the second.",
            call,
        )
    ]


DOC = RuleDoc(
    measures="""
The axis of every softmax whose input is a product of two batches of matrices (queries times keys), at the first
watched step. The last axis is that of the keys; the one before it that of the queries. Axes in front of both are
samples and heads.""",
    why="""
Over samples, each query's weights depend on who else is in the batch and do not sum to one: the output scales with the
batch, and the model learns something that is gone at inference with one sample, where every weight is exactly 1. The
loss falls all the same.""",
    false_positives="""
A softmax over the queries (slot attention, or scores that were transposed first) is not reported. Models that mean to
attend across samples put the samples on the key axis.""",
    example="""
```python
weights = F.softmax(q @ k.transpose(-2, -1))       # no dim: with three axes that is the batch
```""",
    advice="""
`softmax(scores, dim=-1)`, or `F.scaled_dot_product_attention`.""",
    references=("PyTorch documentation, torch.nn.functional.softmax: the implicit choice of dim is deprecated",),
)

RULE = Rule(
    code="GS307",
    name="softmax-axis",
    severity="warning",
    summary="Attention weights are normalised over samples or heads instead of keys.",
    thresholds=(),
    check=check,
    doc=DOC,
)
