"""GS504: tensors that are kept with their graph from one step to the next, through which no second backward passes."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.rules.culprit import finding_at
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc


def check(facts: Facts, _: Levels) -> Sequence[Finding]:
    """Report every attribute whose graph broke the backward pass of a later step."""
    return [
        finding_at(
            facts,
            "GS504",
            "warning",
            event.module,
            f"`{event.detail}` keeps tensors together with the graph of an earlier step: in a plain loop the backward "
            f"pass of step {event.step} raises.",
            {"attribute": event.detail, "step": event.step},
            "Keep `tensor.detach()`, or empty it before every step.",
        )
        for event in facts.events_of("stale")
    ]


DOC = RuleDoc(
    measures="""
Whether the backward pass of a step raised because the loss was computed with a tensor that a module had kept, with its
graph, since an earlier step: in an attribute, a buffer, a list, a dict or an object of its own.""",
    why="""
The graph of a step is freed by its backward pass. A later loss that leads into it cannot be gone back from, and a loop
without a remedy ends there with "Trying to backward through the graph a second time" or "modified by an inplace
operation". gradscope goes on all the same: a state that the forward replaces at every call is carried on detached, a
cache that it uses again is emptied before every step. What a graph that was built with the model breaks ends the
inspection after the step before.""",
    false_positives="""
A loop that feeds the cache something new at every step, or resets the state between sequences, does not raise.""",
    example="""
```python
def forward(self, x):
    self.memory = 0.9 * self.memory + 0.1 * self.encoder(x).mean(0)   # and no .detach()
    return self.head(self.encoder(x) - self.memory)
```""",
    advice="""
1. A running average or a hidden state: keep `new.detach()`.
2. A cache of what was computed with weights that learn: empty it at the start of the forward while training.
3. A weight computed in `__init__`: compute it in the forward, or use `torch.nn.utils.parametrize`.""",
    references=("PyTorch documentation, Autograd mechanics", "PyTorch FAQ, My model reports out of memory"),
)

RULE = Rule(
    code="GS504",
    name="graph-kept",
    severity="warning",
    summary="Tensors are kept with their graph from one step to the next, which breaks the next backward pass.",
    thresholds=(),
    check=check,
    doc=DOC,
)
