"""GS303: units of the ReLU family that are off for every sample."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.rules import levels
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.units import worst_units


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Report the first layer with too many dead units and how many there are."""
    return worst_units(
        facts,
        "GS303",
        "warning",
        "dead_fraction",
        thresholds["fraction"],
        "{value:.0%} of the units behind `{module}` are off for every sample",
        "Check the biases in front of it (a large negative one), lower the learning rate, or use LeakyReLU or GELU.",
    )


DOC = RuleDoc(
    measures="""
Per call of a ReLU (also as a function, and `clamp(min=0)`): the fraction of units, or channels, that are zero for
every sample and position of the batch, at step 0.""",
    why="""
A unit that is off for all samples has gradient zero and stays off. The layer is as narrow as its living units.""",
    false_positives="""
That half of all *values* are zero is what a ReLU does and is not counted. A tenth of dead units is normal in a
He-initialised deep network. With very small batches more units look dead than are; fewer than eight values per unit
are not judged.""",
    example="""
```python
nn.init.constant_(layer.bias, -3.0)        # nearly every unit starts off
```""",
    advice="""
1. Biases at zero.
2. A smaller learning rate, or warm-up.
3. LeakyReLU, GELU or SiLU.""",
    references=("Lu et al. 2019, Dying ReLU and Initialization (arXiv:1903.06733)",),
)

RULE = Rule(
    code="GS303",
    name="dead-units",
    severity="warning",
    summary="Most units of a ReLU layer are off for every sample.",
    thresholds=(levels.DEAD_UNITS,),
    check=check,
    doc=DOC,
)
