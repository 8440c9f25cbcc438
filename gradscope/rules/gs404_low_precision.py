"""GS404: the residual stream, or a norm's own weights, kept in half precision."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.rules import levels
from gradscope.rules.culprit import finding_at
from gradscope.rules.finding import Finding, Severity
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.numbers import count

ERROR_PER_ADDITION = {"bfloat16": 1.2e-3, "float16": 1.5e-4}
"""Relative rounding error of a stream per square root of the number of additions (measured 0.62, 1.2 and 2.3 % after
24, 96 and 384 bfloat16 additions; float16 has three bits more)."""


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Report a stream in half precision with the rounding error that its additions accumulate."""
    additions = sum(site.counted and site.on_stream for site in facts.sites)
    dtype = _stream_dtype(facts)
    if dtype is None or not additions:
        return []
    error = ERROR_PER_ADDITION[dtype] * math.sqrt(additions)
    severity: Severity = "warning" if error >= thresholds["relative_error"] else "info"
    norms = sum(
        p.dtype.removeprefix("torch.") in ERROR_PER_ADDITION
        for p in facts.parameters
        if p.module in facts.modules and facts.modules[p.module].role == "norm"
    )
    start = facts.stations[0].module if facts.stations else ""
    return [
        finding_at(
            facts,
            "GS404",
            severity,
            start,
            f"The residual stream is kept in {dtype}: {count(additions, 'addition')} add about {error:.1%} of "
            "rounding noise.",
            {
                "dtype": dtype,
                "additions": additions,
                "relative_error": error,
                "threshold_relative_error": thresholds["relative_error"],
                "low_precision_norm_parameters": norms,
            },
            "Keep the stream (and the norms' weights) in float32 and only the branches in half precision, as "
            "autocast does.",
        )
    ]


def _stream_dtype(facts: Facts) -> str | None:
    """Return the half-precision dtype of most stations, None where most are wider."""
    dtypes = facts.recording.tables["calls"]["dtype"]
    rows = [row for row in facts.recording.tables["stream"]["call"] if row is not None]
    names = [str(dtypes[row] or "").removeprefix("torch.") for row in rows]
    for dtype in ERROR_PER_ADDITION:
        if names and names.count(dtype) * 2 > len(names):
            return dtype
    return None


DOC = RuleDoc(
    measures="""
The dtype of the residual stream at its stations, the number of additions on it, and the rounding noise these add up
to: 0.12 % · sqrt(additions) in bfloat16, an eighth of that in float16. The evidence also counts norm weights in half
precision.""",
    why="""
Every addition rounds. A deep stack in bfloat16 carries per cents of noise, and in float16 it may overflow (GS402).
PyTorch's norm layers compute in float32 inside; a hand-written one in float16 overflows at 256.""",
    false_positives="""
Many large models are trained with a bfloat16 stream and do well. Hence information, and a warning only from 2 % on.""",
    example="""
```python
model.to(torch.bfloat16)          # weights, norms and stream
```""",
    advice="""
`torch.autocast` with float32 weights; or a float32 stream with half-precision branches. Check the dtype at run
time.""",
    references=("Micikevicius et al. 2018, Mixed Precision Training (arXiv:1710.03740)",),
)

RULE = Rule(
    code="GS404",
    name="low-precision-stream",
    severity="warning",
    summary="The residual stream is kept in half precision.",
    thresholds=(levels.STREAM_ERROR,),
    check=check,
    doc=DOC,
)
