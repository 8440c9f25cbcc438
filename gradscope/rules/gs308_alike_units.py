"""GS308: units of a layer that are all alike and stay so."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.metrics.weights import Parameter, share_of
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.levels import ALIKE_UNITS
from gradscope.rules.numbers import count, listed


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Report weights whose rows, and the gradients of these rows, are equal at the first and the last watched step."""
    steps = facts.observations.get("unit_spread", {})
    seen = [steps.get(step, {}) for step in {facts.steps[0], facts.steps[-1]}] if facts.steps else []
    limit = thresholds["unit_spread"]
    alike = [p for p in facts.trainable if seen and all(at.get((p.name, 0), math.inf) <= limit for at in seen)]
    return [_finding(facts, alike)] if alike else []


def _finding(facts: Facts, alike: Sequence[Parameter]) -> Finding:
    module = alike[0].module
    file, line = facts.place(module)
    units = sum(p.shape[0] for p in alike)
    return Finding(
        code="GS308",
        severity="error",
        module=module,
        message=(
            f"All {count(units, 'unit')} of {listed([p.name for p in alike])} are alike within their layer: they have "
            "the same weights and get the same gradient, so no step will ever tell them apart, and each layer does "
            "what a single unit could."
        ),
        evidence={
            "weights": len(alike),
            "units": units,
            "share_of_parameters": share_of(alike, facts.trainable),
            "last_step": facts.steps[-1],
        },
        advice=(
            "Draw the weights at random (torch.nn.init.kaiming_normal_, xavier_uniform_); only biases may be constant."
        ),
        file=file,
        line=line,
    )


DOC = RuleDoc(
    measures="""
Whether the rows of a weight matrix (its output units or channels) are equal to their neighbours, and so are the
gradients that they get, at the first and the last watched step. Compared at eight places, over 64 columns.""",
    why="""
Two units with the same incoming and outgoing weights compute the same, get the same gradient and stay the same for
ever: a layer of a thousand of them has the capacity of one. Gradients have ordinary sizes, and the loss falls a
little, to what such a network can do.""",
    false_positives="""
Weights that start at zero (last layers, LoRA) have equal rows, but their gradients differ: not reported. Dropout and
other noise inside the network tell units apart. Gains, biases, tables of embeddings and layers of fewer than four units
are not looked at.""",
    example="""
```python
for layer in layers: nn.init.constant_(layer.weight, 0.01)
```""",
    advice="""
Draw weights at random, from a distribution or as a random orthogonal matrix.""",
    references=(
        "Goodfellow, Bengio & Courville 2016, Deep Learning, section 8.4: Parameter Initialization Strategies",
    ),
)

RULE = Rule(
    code="GS308",
    name="alike-units",
    severity="error",
    summary="Units of a layer that have the same weights, get the same gradient and so stay alike.",
    thresholds=(ALIKE_UNITS,),
    check=check,
    doc=DOC,
)
