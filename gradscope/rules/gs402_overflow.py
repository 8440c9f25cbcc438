"""GS402: activations or gradients at the upper end of float16, or beyond it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.metrics.precision import FLOAT16_MAX
from gradscope.rules.culprit import finding_at
from gradscope.rules.finding import Finding, Severity
from gradscope.rules.kind import Levels, Rule, RuleDoc, Threshold

HEADROOM = Threshold(
    "headroom", 4.0, "factor between the largest float16 activation and 65504", "judgement: training moves "
    "activations by this much",
    "A factor of four is gone within the first hundred steps of a growing stream.",
)


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Report the first call that overflows float16 or comes close to it."""
    dtypes = facts.recording.tables["calls"]["dtype"]
    for step in facts.steps:
        for row, value in sorted(facts.call_absmax.get(step, {}).items()):
            used = str(dtypes[row] or "").endswith("float16") and not str(dtypes[row]).endswith("bfloat16")
            if value is None or math.isnan(value) or not (used or value > FLOAT16_MAX):
                continue
            if used and value * thresholds["headroom"] > FLOAT16_MAX:
                return [_finding(facts, row, step, value, used=True)]
            if not used and facts.provenance.dtype != "float64":
                return [_finding(facts, row, step, value, used=False)]
    return []


def _finding(facts: Facts, row: int, step: int, value: float, *, used: bool) -> Finding:
    module = facts.call_modules[row]
    over = value > FLOAT16_MAX
    severity: Severity = ("error" if over else "warning") if used else "info"
    ending = "beyond" if over else "close to"
    return finding_at(
        facts,
        "GS402",
        severity,
        module,
        f"The output of `{module}` reaches {value:.3g}, {ending} float16's largest number (65504)"
        + ("." if used else ": float16 would overflow here."),
        {"absmax": value, "float16_max": FLOAT16_MAX, "step": step},
        "Use bfloat16, or keep this layer in float32; find what lets the stream grow (GS102, GS306)."
        if used
        else "Nothing in float32 or bfloat16; do not cast this model to float16.",
        facts.calls_of[module].index(row),
    )


DOC = RuleDoc(
    measures="""
The largest absolute value of every module output, against float16's largest number, 65504. Where float16 is in use,
within a factor of four of it is a warning and beyond it an error; elsewhere it is information.""",
    why="""
Beyond 65504 float16 is infinity, the next subtraction makes it NaN, and with a GradScaler every step is skipped while
the run looks alive. bfloat16 has float32's range and does not overflow.""",
    false_positives="""
Masks filled with the dtype's minimum are outputs of no module in most models; where a module returns one, it is
counted.""",
    example="""
```python
(1000 * torch.ones(8)).half().square()       # inf
```""",
    advice="""
bfloat16, or float32 for the named layer; then look for what lets the stream grow.""",
    references=("Micikevicius et al. 2018, Mixed Precision Training (arXiv:1710.03740)",),
)

RULE = Rule(
    code="GS402",
    name="overflow",
    severity="error",
    summary="Activations come close to the largest float16 number, or exceed it.",
    thresholds=(HEADROOM,),
    check=check,
    doc=DOC,
)
