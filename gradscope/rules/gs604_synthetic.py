"""GS604: inputs or loss that gradscope made up itself."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc


def check(facts: Facts, _: Levels) -> Sequence[Finding]:
    """Say what was made up and how to give the real thing."""
    origin = facts.provenance
    parts = []
    options = []
    if origin.inputs_synthetic:
        parts.append(f"the inputs ({_what(origin.inputs)})")
        options.append("--inputs file.py:function")
    if origin.loss_synthetic:
        parts.append(f"the loss ({_what(origin.loss)})")
        options.append("--loss file.py:function")
    if not parts:
        return []
    return [
        Finding(
            code="GS604",
            severity="info",
            module="",
            message=f"gradscope made up {' and '.join(parts)}: what it finds holds for them.",
            advice=f"Give your own with {' '.join(options)}.",
            evidence={"inputs_synthetic": origin.inputs_synthetic, "loss_synthetic": origin.loss_synthetic},
        )
    ]


def _what(origin: str) -> str:
    """Return what was made up without the options that give another; the advice names them."""
    return origin.partition("; --")[0]


DOC = RuleDoc(
    measures="""
Whether gradscope had to make up the inputs or the loss, because the target offered none.""",
    why="""
Depth, wiring and initialisation show with any reasonable input. What depends on the data does not: token similarity,
dead units, loss mistakes, statistics of small batches.""",
    false_positives="""
This is information, not a fault.""",
    example="""
```python
# model.py defines a class and nothing else: 8 x 128 random token ids and a cross-entropy are made up
```""",
    advice="""
Define `batch()` and `loss(output, batch)` in the model's file, or give `--inputs` and `--loss`.""",
    references=("gradscope documentation, Targets",),
)

RULE = Rule(
    code="GS604",
    name="synthetic",
    severity="info",
    summary="Inputs or loss were made up by gradscope.",
    thresholds=(),
    check=check,
    doc=DOC,
)
