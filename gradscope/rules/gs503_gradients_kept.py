"""GS503: gradients that are never cleared, so that every step is taken with the sum of all before it."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.rules.culprit import finding_at
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc

SEEN = 2
"""Watched steps (count) that began with old gradients, from which it is a habit of the loop."""


def check(facts: Facts, _: Levels) -> Sequence[Finding]:
    """Report a loop that steps again and again without clearing."""
    kept = {event.step for event in facts.events_of("kept")}
    if len(kept) < SEEN:
        return []
    later = [step for step in facts.steps if step > 0]
    return [
        finding_at(
            facts,
            "GS503",
            "error",
            "",
            f"At {len(kept)} of {len(later)} watched steps after the first the gradients of the step before were still "
            "there when the backward pass began, and were added to.",
            {"steps_with_old_gradients": len(kept), "of": len(later)},
            "Call optimizer.zero_grad() before every backward pass, or after every optimizer step.",
        )
    ]


DOC = RuleDoc(
    measures="""
Whether `.grad` still held numbers when the first backward pass after an optimizer step began, in a loop of one's own
(`gradscope run`, `gradscope.watch`), and nothing was seen to clear it.""",
    why="""
PyTorch adds to `.grad`. Without `zero_grad()` each step is taken with the sum of all gradients so far: old ones never
fade, the steps grow, and training circles around what it looks for. Nothing else in the report looks wrong.""",
    false_positives="""
Gradient accumulation is not meant: there the gradients are cleared after each optimizer step, and it is the passes in
between that add up. Nor are gradients of `autograd.grad` that the loop puts into `.grad`: they add to nothing.""",
    example="""
```python
for x, y in loader:
    F.cross_entropy(model(x), y).backward()
    optimizer.step()                         # and no optimizer.zero_grad()
```""",
    advice="""
1. `optimizer.zero_grad()` in front of the backward pass.
2. With accumulation over k passes: after every optimizer step, not after every k-th of them.""",
    references=("PyTorch documentation, Zeroing out gradients in PyTorch",),
)

RULE = Rule(
    code="GS503",
    name="gradients-kept",
    severity="error",
    summary="Gradients are never cleared, so that every step is taken with the sum of all before it.",
    thresholds=(),
    check=check,
    doc=DOC,
)
