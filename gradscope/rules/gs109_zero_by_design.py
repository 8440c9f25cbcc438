"""GS109: gradients that are exactly zero at initialisation and wake up within the watched steps."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.covering import covering_modules
from gradscope.metrics.facts import Facts
from gradscope.metrics.silence import closed_doors, states
from gradscope.metrics.weights import Parameter
from gradscope.rules.culprit import common_module
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.numbers import count, listed


def check(facts: Facts, _: Levels) -> Sequence[Finding]:
    """Report all such parameters in one remark."""
    if not facts.steps:
        return []
    state = states(facts)
    asleep = [p for p in facts.trainable if state[p.row] == "asleep" and p.is_matrix]
    unsure = [p for p in facts.trainable if state[p.row] == "unsure" and p.is_matrix]
    keys = closed_doors(facts)
    if not keys or not (asleep or unsure):
        return []
    return [_finding(facts, asleep or unsure, keys, woke=bool(asleep))]


def _finding(facts: Facts, silent: Sequence[Parameter], keys: Sequence[Parameter], *, woke: bool) -> Finding:
    first = facts.steps[0]
    later = next((s for s in facts.steps[1:] if all(facts.parameter_gradients[s].get(p.row) for p in silent)), None)
    places = covering_modules(facts, [p.name for p in silent])
    module = common_module(places)
    file, line = facts.place(module)
    ending = f", and alive at step {later if later is not None else facts.steps[-1]}" if woke else ""
    return Finding(
        code="GS109",
        severity="info",
        module=module,
        message=(
            f"{count(len(silent), 'weight')} ({listed([p.name for p in silent])}) have a gradient of exactly zero at "
            f"step {first}{ending}: by design, since {listed([p.name for p in keys])} "
            f"{'starts' if len(keys) == 1 else 'start'} at zero."
        ),
        evidence={"zero_parameters": len(silent), "zero_weights": len(keys), "step": first, "alive_at_step": later},
        advice=(
            "Nothing: the zero weights move first and open the branches."
            if woke
            else "Watch a few optimizer steps (--steps 11) to see them wake up."
        ),
        file=file,
        line=line,
    )


DOC = RuleDoc(
    measures="""
Weights whose gradient is exactly zero at step 0 and not at the last watched step, in a network in which another
weight starts at zero and does get a gradient.""",
    why="""
ReZero, SkipInit, Fixup, zero-initialised last layers or last norms, and LoRA start their branches at zero so that the
network begins as the identity. At step 0 nothing passes through a factor of zero; after one step everything does. A
tool that looks once calls these networks dead.""",
    false_positives="""
This is information, never a fault. If weights stay at zero, GS105 says so instead.""",
    example="""
```python
nn.init.zeros_(self.bn2.weight)      # the last norm of every block: conv1, bn1 and conv2 sleep for one step
```""",
    advice="""
Nothing. Do not initialise both factors of a product at zero.""",
    references=(
        "Bachlechner et al. 2020, ReZero is All You Need (arXiv:2003.04887)",
        "Goyal et al. 2017, Accurate, Large Minibatch SGD (arXiv:1706.02677)",
        "Zhang et al. 2019, Fixup Initialization (arXiv:1901.09321)",
        "De & Smith 2020, SkipInit (arXiv:2002.10444)",
    ),
)

RULE = Rule(
    code="GS109",
    name="zero-by-design",
    severity="info",
    summary="Gradients that are exactly zero at initialisation on purpose and wake up within a few steps.",
    thresholds=(),
    check=check,
    doc=DOC,
)
