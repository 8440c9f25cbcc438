"""GS104: NaN or infinity in the loss, an activation or a gradient, with the place where it is born."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gradscope.metrics.columns import middle
from gradscope.metrics.facts import Facts
from gradscope.metrics.output import output_rms
from gradscope.record import OUTSIDE_CALL
from gradscope.rules.finding import Finding
from gradscope.rules.gs401_underflow import flushed_regions
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.levels import LARGE_UPDATE
from gradscope.rules.nonfinite_cures import PRODUCTS, cure
from gradscope.rules.numbers import count, listed
from gradscope.rules.updates import steps_are_real, updates_at

HARMLESS = " No gradient of a parameter is touched by it: so it is with scores that are masked with -inf on purpose."


MASK = "Nothing, where it is meant as a mask."

OWN_RATE = " The first step was sound and those after it went astray: the rate is the inspection's own."

LOWER = (
    "Lower the learning rate (`--lr`): the inspection's suits a mean loss of a few units. A loss that is summed or "
    "multiplied needs a rate divided by as much."
)

USUAL_OUTPUT = 10.0
"""Root mean square of the output up to which it is not the network that makes plain SGD diverge at a usual rate: of
those that did, and trained at none, the least had 60."""


@dataclass(frozen=True)
class Birth:
    """Where the first non-finite number was seen."""

    direction: str
    step: int | None
    module: str
    call: int
    op: str | None
    file: str | None
    line: int | None
    detail: str | None

    @property
    def in_loss(self) -> bool:
        """Whether it is born in what is computed from the model's output."""
        return self.call == OUTSIDE_CALL

    @property
    def made_by_update(self) -> bool:
        """Whether it is a weight that was finite at first: the optimizer's update made it so."""
        return self.op == "parameter" and bool(self.step)


def check(facts: Facts, _: Levels) -> Sequence[Finding]:
    """Find the first step with a non-finite number and the place of its birth."""
    birth = _from_events(facts) or _from_statistics(facts)
    if birth is not None and birth.made_by_update and flushed_regions(facts):
        return []
    hit = _parameters_hit(facts)
    bad_loss = next((step for step in steps_taken(facts) if _bad(facts.losses.get(step))), None)
    if birth is None and not hit and bad_loss is None:
        return []
    if birth is None:
        owner = hit[0].rpartition(".")[0] if hit else ""
        direction = "loss" if bad_loss is not None and not hit else "backward"
        birth = Birth(direction, bad_loss, owner, 0, None, None, None, None)
    file, line = (birth.file, birth.line) if birth.file else facts.place(birth.module)
    own_rate = _diverges_at_our_rate(facts, birth)
    harmless = not hit and bad_loss is None and birth.op != "parameter" and _gradients_known(facts, birth.step)
    return [
        Finding(
            code="GS104",
            severity="info" if harmless else "warning" if own_rate else "error",
            module=birth.module,
            call=max(birth.call, 0),
            message=_message(facts, birth, hit, bad_loss) + (HARMLESS if harmless else OWN_RATE if own_rate else ""),
            evidence={
                "direction": birth.direction,
                "operation": birth.op,
                "step": birth.step,
                "parameters_hit": len(hit),
                "loss_finite": bad_loss is None,
            },
            advice=MASK if harmless else LOWER if own_rate else _advice(birth),
            file=file,
            line=line,
        )
    ]


def _diverges_at_our_rate(facts: Facts, birth: Birth) -> bool:
    """Whether plain SGD found the first step sound, and what it made of the weights then grew beyond all bounds.

    In the inspection's own loop the rate is the inspection's, and a factor on the loss decides how large its steps are.
    """
    first = facts.steps[0]
    size = output_rms(facts, first)
    sound = bool(birth.step and birth.step > first) and size is not None and size <= USUAL_OUTPUT
    replaced = max(middle(ratio for _, ratio in updates_at(facts, step)) or 0.0 for step in facts.steps)
    grew = birth.made_by_update or birth.op in PRODUCTS or replaced >= LARGE_UPDATE.value
    return sound and grew and not steps_are_real(facts)


def _message(facts: Facts, birth: Birth, hit: Sequence[str], bad_loss: int | None) -> str:
    place = f"`{birth.module}`" if birth.module else "the model's own forward"
    place = "the loss, after the model has returned," if birth.in_loss else place
    operation = " as a constant" if birth.op == "constant" else f" by {birth.op}" if birth.op else ""
    when = f" at step {birth.step}" if birth.step is not None else ""
    if birth.direction == "loss":
        return f"The loss is not finite{when} although every watched activation is: it is born in the loss function."
    unseen = " The loss is finite, so it would not show there." if hit else " The loss is finite."
    loss = " The loss is not finite." if bad_loss is not None else unseen
    if birth.op in ("parameter", "buffer"):
        what = "weights" if birth.op == "parameter" else "buffers"
        before = f"before step {birth.step}" if birth.step else "before the first step"
        by = _when_updated(facts, birth) if birth.made_by_update else before
        return f"The {what} of {place} are not finite {by} ({birth.detail or 'no detail'}).{loss}"
    verb = {"forward": "the forward pass", "backward": "the backward pass"}[birth.direction]
    lands = f"; it lands in the gradients of {count(len(hit), 'parameter')} ({listed(hit)})" if hit else ""
    return f"A NaN or infinity is born in {place}{operation} in {verb}{when}{lands}.{loss}"


def steps_taken(facts: Facts) -> list[int]:
    """Return the watched steps without those that a GradScaler skipped while it looked for its scale.

    Where it skipped every one of them it is not looking, but failing: then all of them count.
    """
    skipped = {event.step for event in facts.events_of("skipped")}
    return [step for step in facts.steps if step not in skipped] or list(facts.steps)


def _when_updated(facts: Facts, birth: Birth) -> str:
    """Say after which updates weights were no longer finite: all of those since the step that was watched before."""
    before = max((step for step in facts.steps if step < (birth.step or 0)), default=0)
    if birth.step == before + 1:
        return f"after the update before step {birth.step}"
    return f"after one of the updates between the watched steps {before} and {birth.step}"


def _advice(birth: Birth) -> str:
    text = (birth.op or "").lower()
    if birth.step and text in PRODUCTS and (birth.detail or "").startswith("inf came out of finite"):
        return (
            "A product of finite numbers is beyond the dtype's range: weights or activations have grown over the steps "
            "before. Lower the learning rate, warm it up, or clip the gradient."
        )
    if birth.made_by_update:
        return (
            "Lower the learning rate or clip the gradient. In float16 Adam divides by an epsilon of 1e-8 that rounds "
            "to zero: keep the weights in float32 under autocast."
        )
    return cure(text, birth.detail or "", backward=birth.direction == "backward")


def _from_events(facts: Facts) -> Birth | None:
    """Return the first forward event of the earliest step that has one, else its first backward event."""
    events = facts.events_of("nonfinite_forward", "nonfinite_backward")
    if not events:
        return None
    step = min((event.step for event in events if event.step is not None), default=None)
    first = [event for event in events if event.step == step]
    event = next((e for e in first if e.kind == "nonfinite_forward"), first[0])
    direction = event.kind.removeprefix("nonfinite_")
    return Birth(direction, event.step, event.module, event.call, event.op, event.file, event.line, event.detail)


def _from_statistics(facts: Facts) -> Birth | None:
    """Return the first call with a non-finite output, else the last one (nearest to the loss) with such a gradient."""
    for step in steps_taken(facts):
        row = _extreme_row(facts.call_forwards.get(step, {}), last=False)
        if row is not None:
            return _birth(facts, "forward", step, row)
        row = _extreme_row(facts.call_gradients.get(step, {}), last=True)
        if row is not None:
            return _birth(facts, "backward", step, row)
    return None


def _extreme_row(norms: Mapping[int, float | None], *, last: bool) -> int | None:
    rows = [row for row, norm in norms.items() if norm is not None and not math.isfinite(norm)]
    if not rows:
        return None
    return max(rows) if last else min(rows)


def _birth(facts: Facts, direction: str, step: int, row: int) -> Birth:
    module = facts.call_modules[row]
    return Birth(direction, step, module, facts.calls_of[module].index(row), None, None, None, None)


def _parameters_hit(facts: Facts) -> list[str]:
    for step in steps_taken(facts):
        norms = facts.parameter_gradients.get(step, {})
        hit = [p.name for p in facts.trainable if _bad(norms.get(p.row))]
        if hit:
            return hit
    return []


def _gradients_known(facts: Facts, step: int | None) -> bool:
    """Whether parameter gradients were measured at a step, so that their being finite says something."""
    at = min(facts.steps, default=0) if step is None else step
    return any(norm is not None for norm in facts.parameter_gradients.get(at, {}).values())


def _bad(value: float | None) -> bool:
    return value is not None and not math.isfinite(value)


DOC = RuleDoc(
    measures="""
Whether the loss, the output of any module, or any gradient contains NaN or infinity at a watched step, what it
reaches, and where the first one is born: the module (and operation) whose inputs are finite and whose output, or input
gradient, is not.""",
    why="""
One NaN in a gradient turns the weight into NaN at the next step and the whole network soon after. The loss can still
be finite: a padded row is dropped from the loss, but 0 · NaN in the backward pass poisons the weights.
`clip_grad_norm_` passes it on in silence. A NaN lands far from where it is born, so the place matters more than the
fact.""",
    false_positives="""
With float16 and a GradScaler the first steps may overflow on purpose while the scale adapts: steps that it skips do not
count, unless it skips every watched one. Infinity that a model uses itself as a mask inside a module is not an output
and not reported; where a module returns it (scores of padded words, set to -inf) and neither the loss nor a gradient
of a parameter is touched, it is a remark.""",
    example="""
```python
scores = scores.masked_fill(~keep[:, None, :], float("-inf"))   # one sequence has no token to keep:
weights = scores.softmax(-1)                                    # its rows are NaN, and so is the gradient of v
```""",
    advice="""
1. Look at the named operation.
2. Masks: use a large finite number, or guarantee one key per row.
3. Roots, norms and divisions at zero: a small constant inside; `F.normalize` and `torch.linalg.vector_norm` are safe.
4. `torch.where(x > 0, x.log(), 0)` still differentiates the log at 0: make the argument safe first.""",
    references=(
        "PyTorch issue #41508: NaN gradients from attention with a fully masked row",
        "PyTorch issue #46849: clip_grad_norm_ passes on non-finite gradients",
    ),
)

RULE = Rule(
    code="GS104",
    name="non-finite",
    severity="error",
    summary="NaN or infinity, with the place where it is born.",
    thresholds=(),
    check=check,
    doc=DOC,
)
