"""GS302: activations of bounded functions that sit at their limits."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.rules import levels
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.units import worst_units


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Report the first saturated activation and how many there are."""
    return worst_units(
        facts,
        "GS302",
        "info",
        "saturated_fraction",
        thresholds["fraction"],
        "{value:.0%} of the values of `{module}` are saturated: their derivative is below 2 % of its maximum",
        "Scale the weights in front of it down (Xavier or orthogonal), normalise its input, or use an unbounded "
        "activation.",
    )


DOC = RuleDoc(
    measures="""
Per call of tanh, sigmoid, softsign and their hard kin: the fraction of values at which the derivative is below 2 % of
its maximum (|tanh| above 0.99, for example), at step 0.""",
    why="""
A saturated unit passes no gradient. When most units of a layer are saturated, the gradient flows through the few that
are not, in jumps.""",
    false_positives="""
Saturation is not vanishing. Tanh stacks with N(0, 1) weights have 80 % of their units saturated and *explode*,
because the few open units are multiplied by large weights; sigmoid stacks of the same kind train. Gates that are
closed on purpose (highway, LSTM) are saturated too. Hence information: GS101, GS102 and GS108 decide.""",
    example="""
```python
nn.init.normal_(layer.weight)            # standard deviation 1 instead of 1/sqrt(width), in front of a tanh
```""",
    advice="""
1. Weights at Xavier or orthogonal scale.
2. A norm in front of the activation.
3. ReLU, GELU or SiLU.""",
    references=("Glorot & Bengio 2010, Understanding the difficulty of training deep feedforward neural networks",),
)

RULE = Rule(
    code="GS302",
    name="saturated-units",
    severity="info",
    summary="Most values of a bounded activation sit at its limits.",
    thresholds=(levels.SATURATED,),
    check=check,
    doc=DOC,
)
