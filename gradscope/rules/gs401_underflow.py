"""GS401: gradients that round to zero in the dtype used, or would in a narrower one."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.metrics.precision import (
    FORMAT_FLOOR_LOG2,
    Magnitudes,
    fraction_below,
    largest_log2,
    recommended_loss_scale_log2,
)
from gradscope.metrics.silence import states
from gradscope.metrics.silent_regions import Region, regions
from gradscope.metrics.weights import share_of
from gradscope.rules import levels
from gradscope.rules.culprit import common_module, finding_at
from gradscope.rules.finding import Finding, Severity
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.numbers import count, listed

FLOAT16_LOWEST_LOG2 = -24
"""log2 of float16's smallest subnormal, the lowest magnitude that can be seen in a float16 gradient."""

FLOOR_OCTAVES = 4
"""Octaves above the floor in which a float16 number keeps at most four bits."""


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Judge float16 by what was lost, everything else by what float16 would lose."""
    if not facts.steps:
        return []
    if "float16" in facts.dtypes:
        return [*_flushed(facts)] or [*_at_the_floor(facts, thresholds)]
    return [*_outlook(facts, thresholds)]


def flushed_regions(facts: Facts) -> list[Region]:
    """Return the places at which float16 gradients are all zero because they were too small."""
    state = states(facts)
    silent = [p for p in facts.trainable if state[p.row] in ("dead", "unsure")]
    return [region for region in regions(facts, silent) if region.underflowed] if silent else []


def _flushed(facts: Facts) -> list[Finding]:
    found = flushed_regions(facts)
    if not found:
        return []
    silent = [p for region in found for p in region.parameters]
    module = common_module([p.module for p in silent])
    share = share_of(silent, facts.trainable)
    return [
        finding_at(
            facts,
            "GS401",
            "error",
            module or found[-1].culprit,
            f"The gradients of {count(len(silent), 'parameter')} ({listed([p.name for p in silent])}) are all zero: "
            "in float16 everything below 6e-8 rounds to zero, and nothing scales the loss up.",
            {
                "zero_parameters": len(silent),
                "share_of_parameters": share,
                "loss_scale": _loss_scale(facts),
                "dtype": "float16",
            },
            "Scale the loss (torch.amp.GradScaler), keep the weights in float32 under autocast, or use bfloat16. A "
            "larger learning rate does not help.",
        )
    ]


def _at_the_floor(facts: Facts, thresholds: Levels) -> list[Finding]:
    items = _activations(facts)
    at_floor = fraction_below(items, FLOAT16_LOWEST_LOG2 + FLOOR_OCTAVES)
    if at_floor is None or at_floor < thresholds["floor_fraction"]:
        return []
    worst = max(items, key=lambda item: item.fraction_below(FLOAT16_LOWEST_LOG2 + FLOOR_OCTAVES) or 0.0)
    scale = recommended_loss_scale_log2(largest_log2(items))
    return [
        finding_at(
            facts,
            "GS401",
            "error" if at_floor >= 2 * thresholds["floor_fraction"] else "warning",
            worst.name.partition("@")[0],
            f"{at_floor:.0%} of the float16 gradients lie within four octaves of the smallest number; about as many "
            "have already been rounded to zero.",
            {
                "floor_fraction": at_floor,
                "threshold_floor_fraction": thresholds["floor_fraction"],
                "recommended_loss_scale_log2": scale,
                "dtype": "float16",
            },
            _scale_advice(scale),
        )
    ]


def _outlook(facts: Facts, thresholds: Levels) -> list[Finding]:
    items = _activations(facts)
    lost = fraction_below(items, FORMAT_FLOOR_LOG2["float16"])
    if lost is None or lost < thresholds["fraction"]:
        return []
    worst = max(items, key=lambda item: item.fraction_below(FORMAT_FLOOR_LOG2["float16"]) or 0.0)
    scale = recommended_loss_scale_log2(largest_log2(items))
    left = None if scale is None else fraction_below(items, FORMAT_FLOOR_LOG2["float16"] - scale)
    severity: Severity = "info"
    return [
        finding_at(
            facts,
            "GS401",
            severity,
            worst.name.partition("@")[0],
            f"float16 without a loss scale would round {lost:.0%} of the gradients to zero"
            + (f"; with a loss scale of 2^{scale} it is {left:.1%}." if left is not None else "."),
            {
                "underflow_fp16": lost,
                "threshold_fraction": thresholds["fraction"],
                "recommended_loss_scale_log2": scale,
                "underflow_fp16_scaled": left,
                "underflow_e5m2": fraction_below(items, FORMAT_FLOOR_LOG2["float8_e5m2"]),
                "underflow_e4m3": fraction_below(items, FORMAT_FLOOR_LOG2["float8_e4m3"]),
            },
            "Nothing in float32 or bfloat16. In float16: " + _scale_advice(scale),
        )
    ]


def _scale_advice(scale: int | None) -> str:
    named = f" of up to 2^{scale}" if scale is not None else ""
    return f"scale the loss{named} (torch.amp.GradScaler finds it), or use bfloat16; do not raise the learning rate."


def _activations(facts: Facts) -> list[Magnitudes]:
    """Magnitudes of activation gradients: those of biases in front of norms are rounding noise and prove nothing."""
    first = facts.magnitudes.get(facts.steps[0], ())
    return [item for item in first if item.kind == "activation"]


def _loss_scale(facts: Facts) -> float | None:
    scales = facts.recording.tables["steps"]["loss_scale"]
    return scales[0] if scales else None


DOC = RuleDoc(
    measures="""
In float16: whether gradients have rounded to zero, and how many of the others lie just above the smallest number
(6e-8). In other dtypes: the fraction of gradient elements that float16 would round to zero (below 2^-25), and the
loss scale 2^k that brings the largest element just below 2^15 and so saves as many as can be saved. E5M2 (2^-17) and
E4M3 (2^-10) are in the evidence.""",
    why="""
A gradient that rounds to zero teaches nothing, and it is the small ones that do: those of early layers, large batches
and long sequences (an activation gradient of a mean loss falls as 1/(batch · tokens)). The run looks converged.""",
    false_positives="""
The outlook is information as long as float16 is not used. Gradients of biases in front of a norm are rounding noise
and are left out.""",
    example="""
```python
model.half()(x).float().sub(y).square().mean().backward()     # no GradScaler
```""",
    advice="""
1. `torch.amp.GradScaler` and float32 weights under autocast.
2. bfloat16: it has float32's range.
3. float8: scale per tensor or block, E5M2 for gradients.""",
    references=(
        "Micikevicius et al. 2018, Mixed Precision Training (arXiv:1710.03740)",
        "Micikevicius et al. 2022, FP8 Formats for Deep Learning (arXiv:2209.05433)",
    ),
)

RULE = Rule(
    code="GS401",
    name="underflow",
    severity="error",
    summary="Gradients round to zero in the dtype used, or would in float16.",
    thresholds=(levels.FEW_SMALL, levels.FLOOR_SHARE),
    check=check,
    doc=DOC,
)
