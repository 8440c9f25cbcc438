"""GS603: parameters that took no part in the watched steps."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.covering import covering_modules
from gradscope.metrics.facts import Facts
from gradscope.rules.culprit import common_module, finding_at
from gradscope.rules.finding import Finding
from gradscope.rules.idle import idle, reason_of, share_of_numbers
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.numbers import count, listed


def check(facts: Facts, _: Levels) -> Sequence[Finding]:
    """Report in one remark all unreached parameters that GS106 does not."""
    unused = idle(facts)
    if not unused:
        return []
    places = covering_modules(facts, [p.name for p in unused])
    share = share_of_numbers(facts, unused)
    return [
        finding_at(
            facts,
            "GS603",
            "info",
            common_module(places) if len(places) > 1 else places[0],
            f"{count(len(unused), 'parameter')} got no gradient in the watched steps: {reason_of(facts, unused)} "
            f"({listed(places)}).",
            {
                "parameters": len(unused),
                "not_called": sum(not facts.was_called(p.module) for p in unused),
                "elements": sum(p.num_elements for p in unused),
                "share": share,
            },
            "Nothing, if it is meant (experts without tokens, heads of another task). Otherwise remove them, or "
            "freeze them with requires_grad_(False); distributed training needs find_unused_parameters for them.",
        )
    ]


DOC = RuleDoc(
    measures="""
Parameters with `requires_grad=True` that no watched backward reached, although nothing is cut in front of the loss:
their modules were not called, or the loss does not use what they computed.""",
    why="""
Usually this is on purpose. Sometimes a layer was built and forgotten, and in distributed training unused parameters
stop the run.""",
    false_positives="""
Experts of a mixture that received no token, heads of other tasks, layers skipped by stochastic depth: on purpose, and
therefore information. A few watched steps see only a part of the routing.""",
    example="""
```python
self.projection = nn.Linear(64, 64)          # built, never used in forward
```""",
    advice="""
Remove or freeze what is not needed.""",
    references=("PyTorch documentation, DistributedDataParallel: find_unused_parameters",),
)

RULE = Rule(
    code="GS603",
    name="unused-parameters",
    severity="info",
    summary="Parameters took no part in the watched steps.",
    thresholds=(),
    check=check,
    doc=DOC,
)
