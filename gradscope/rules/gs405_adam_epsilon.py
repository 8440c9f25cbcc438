"""GS405: gradients so small that Adam's epsilon shortens the steps."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.metrics.output import has_learnt
from gradscope.metrics.weights import ADAM_EPSILON, Parameter, adam_damping, rms
from gradscope.rules import levels
from gradscope.rules.culprit import finding_at
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.with_depth import lost_decades

STARVED = ("query", "key")
"""Roles whose small gradients GS305 names with their cause."""


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Count the weight matrices whose gradient is near epsilon, at the last watched step.

    A gradient that has become small because the loss has is a success, and one of a standstill was as small at first.
    """
    if "adam" not in facts.optimizer or not facts.steps or _vanishes(facts) or has_learnt(facts):
        return []
    known = _sizes(facts, facts.steps[-1])
    damped = [(p, size) for p, size in known if size < thresholds["epsilons"] * ADAM_EPSILON]
    if not damped or len(damped) < thresholds["share"] * len(known):
        return []
    return [_finding(facts, damped, len(known), thresholds)]


def _sizes(facts: Facts, step: int) -> list[tuple[Parameter, float]]:
    """Return the root mean square of each weight matrix's gradient at a step, where one arrived."""
    grads = facts.parameter_gradients.get(step, {})
    matrices = [p for p in facts.trainable if p.is_matrix and p.role not in STARVED]
    sizes = [(p, rms(grads.get(p.row), p.num_elements)) for p in matrices]
    return [(p, size) for p, size in sizes if size]


def _best_step_kept(sizes: Sequence[tuple[Parameter, float]]) -> float:
    """Return the largest share of its step (fraction) that Adam leaves any of some matrices."""
    return max((adam_damping(size) or 0.0 for _, size in sizes), default=1.0)


def _vanishes(facts: Facts) -> bool:
    """Whether the gradient vanishes with depth: small gradients are then its effect, and GS101 names the cause."""
    lost = lost_decades(facts, facts.profile) if facts.profile else None
    return lost is not None and lost <= -levels.FAIL_DECADES.value


def _finding(
    facts: Facts, damped: Sequence[tuple[Parameter, float]], total: int, thresholds: Levels
) -> Finding:
    worst, size = min(damped, key=lambda pair: pair[1])
    kept = adam_damping(size) or 0.0
    best = max(_best_step_kept(_sizes(facts, step)) for step in (facts.steps[0], facts.steps[-1]))
    return finding_at(
        facts,
        "GS405",
        "error" if best < thresholds["standstill"] else "warning",
        worst.module,
        f"Adam's epsilon shortens the steps of {len(damped)} of {total} weight matrices; `{worst.name}` takes "
        f"{kept:.0%} of its step (gradient {size:.1e}, epsilon {ADAM_EPSILON:.0e}).",
        {
            "grad_rms": size,
            "epsilon": ADAM_EPSILON,
            "threshold_epsilons": thresholds["epsilons"],
            "step_kept": kept,
            "best_step_kept": best,
            "damped": len(damped),
            "of": total,
        },
        "Use a smaller epsilon (1e-10 to 1e-15), a loss that is not scaled down, or Adam-atan2, which has no epsilon.",
    )


DOC = RuleDoc(
    measures="""
The root mean square of every weight matrix's gradient in units of Adam's epsilon (1e-8, PyTorch's default). Adam's
first step is |g| / (|g| + ε) of its learning rate: 91 % at ten epsilons, half at one, 9 % at a tenth. It is an error
where no matrix takes more than a thirtieth of its step, at the first watched step and at the last.""",
    why="""
Adam is said not to care for the scale of the loss. It does, once gradients come near its epsilon: wide models, long
sequences and loss terms with small weights then learn more slowly than their learning rate says, layer by layer
differently.""",
    false_positives="""
An optimizer with its own, smaller epsilon is not known to gradscope. Vectors (biases, gains) are not counted. Unlike
the other rules this one depends on the scale of the loss, because Adam's epsilon does. A loss that has fallen to next
to nothing takes its gradient along: that is not reported where a cross-entropy shows it, and is no error elsewhere.""",
    example="""
```python
(1e-6 * loss).backward()          # gradients of 1e-9: a tenth of the steps
```""",
    advice="""
1. A smaller epsilon.
2. A larger loss weight.
3. Adam-atan2.""",
    references=(
        "Wortsman et al. 2023, Small-scale proxies for large-scale Transformer training instabilities "
        "(arXiv:2309.14322)",
        "Everett et al. 2024, Scaling Exponents Across Parameterizations and Optimizers (arXiv:2407.05872)",
    ),
)

RULE = Rule(
    code="GS405",
    name="adam-epsilon",
    severity="error",
    summary="Gradients are so small that Adam's epsilon shortens the steps.",
    thresholds=(levels.DAMPING, levels.DAMPED_SHARE, levels.STANDSTILL),
    check=check,
    doc=DOC,
)
