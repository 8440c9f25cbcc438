"""GS502: weights with a gradient that the optimizer does not change, or hardly."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.columns import middle
from gradscope.metrics.covering import covering_modules
from gradscope.metrics.facts import Facts
from gradscope.metrics.weights import Parameter, adam_damping, rms, share_of
from gradscope.rules import levels
from gradscope.rules.culprit import common_module, finding_at
from gradscope.rules.finding import Finding
from gradscope.rules.grounds import HALF
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.numbers import listed
from gradscope.rules.updates import steps_are_real, updates_at_last_step

ALL_DAMPED = 1e-3
"""Fraction of Adam's step left below which epsilon, and not the optimizer's set-up, is why nothing moves."""


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Report matrices that never move, else a median ratio that is too small."""
    ratios = [(p, ratio) for p, ratio in updates_at_last_step(facts) if not _damped(facts, p)]
    still = [p for p, _ in ratios if _never_moves(facts, p)]
    if still:
        return [_still(facts, still, [p for p, _ in ratios], thresholds["followed_share"])]
    usual = middle(ratio for _, ratio in ratios)
    if usual is None or usual >= thresholds["update_to_weight"]:
        return []
    smallest, value = min(ratios, key=lambda pair: pair[1])
    return [
        finding_at(
            facts,
            "GS502",
            "error" if _is_settled(facts) else "warning",
            smallest.module,
            f"One step changes half of the weight matrices by less than {usual:.0e} of their norm (least "
            f"`{smallest.name}`: {value:.0e}); 1e-4 to 1e-2 is normal.",
            {
                "update_to_weight": usual,
                "threshold_update_to_weight": thresholds["update_to_weight"],
                "lr": facts.learning_rate,
                "step": max(facts.update_norms),
                "may_recover": True,
                "own_rate": not steps_are_real(facts),
            },
            "Raise the learning rate (under SGD: by the inverse of the gradient's size), or use Adam.",
        )
    ]


def _is_settled(facts: Facts) -> bool:
    """Whether the small step says something of the run; a warm-up raises its rate."""
    rates = [rate for rate in facts.recording.tables["steps"]["lr"] if rate is not None]
    return steps_are_real(facts) and not (len(rates) > 1 and rates[-1] > rates[0])


def _damped(facts: Facts, parameter: Parameter) -> bool:
    """Whether Adam's epsilon eats the step (GS405), as it does where the gradient vanishes (GS101)."""
    grad = facts.parameter_gradients[max(facts.update_norms)].get(parameter.row)
    kept = adam_damping(rms(grad, parameter.num_elements))
    return "adam" in facts.optimizer and kept is not None and kept < ALL_DAMPED


def _followed(facts: Facts) -> float:
    """Return the share of the squared gradient, at the last step, that lies at parameters which ever change."""
    gradients = facts.parameter_gradients[max(facts.update_norms)]
    squares = {p.row: (gradients.get(p.row) or 0.0) ** 2 for p in facts.trainable}
    followed = sum(square for row, square in squares.items() if any(u.get(row) for u in facts.update_norms.values()))
    return followed / (sum(squares.values()) or 1.0)


def _never_moves(facts: Facts, parameter: Parameter) -> bool:
    updates = [facts.update_norms[step].get(parameter.row) for step in facts.update_norms]
    return any(update is not None for update in updates) and not any(updates)


def _still(facts: Facts, still: Sequence[Parameter], matrices: Sequence[Parameter], least: float) -> Finding:
    half = [p for p in still if p.dtype.removeprefix("torch.") in ("float16", "bfloat16")]
    module = common_module(covering_modules(facts, [p.name for p in still]))
    followed, share = _followed(facts), share_of(still, facts.trainable)
    lost = len(half) == len(still) and share >= HALF
    return finding_at(
        facts,
        "GS502",
        "error" if (lost or not followed) and steps_are_real(facts) else "warning",
        module,
        f"{len(still)} of {len(matrices)} weight matrices ({listed([p.name for p in still])}) get a gradient and do "
        f"not change by a single bit{_rest(followed)}.",
        {
            "unchanged": len(still),
            "of": len(matrices),
            "half_precision": len(half),
            "share_of_parameters": share,
            "followed_share": followed,
            "threshold_followed_share": least,
            "may_recover": followed > 0.0,
            "at_risk": followed < least and matrices[-1] in still,
        },
        (
            "In half precision an update below half a unit in the last place is lost: keep float32 master "
            "weights, or use stochastic rounding."
            if len(half) == len(still)
            else "If they are not to learn, freeze them with requires_grad_(False), which saves their backward pass. "
            "If they are, check that the optimizer holds them (it may have been built before they were replaced) and "
            "that their learning rate is not zero."
        ),
    )


def _rest(followed: float) -> str:
    return f"; what changes has {followed:.1%} of the squared gradient" if followed else ""


DOC = RuleDoc(
    measures="""
‖W_after − W_before‖ / ‖W‖ of every weight matrix with a gradient, of the steps that the optimizer really took:
whether any matrix never changes, and whether the median ratio is too small. An error where nothing changes, where half
precision swallows the steps of half of the weights, or where the small step is the optimizer's own: not that of a
warm-up, whose rate rises, nor that of plain SGD in the inspection's own loop, which depends on the scale of the loss.
Where only a part changes, without the last layer, the verdict asks how much of the gradient that part has.""",
    why="""
A parameter that the optimizer does not hold (it was built before a layer was replaced), a learning rate of zero, or
an update that rounds away in half precision: the gradient is perfect and nothing is learnt.""",
    false_positives="""
The first steps of a warm-up that starts at zero. Layers held back on purpose: a head trained alone on a backbone that
nobody froze learns as far as the backbone's features go, and warns.""",
    example="""
```python
optimizer = torch.optim.Adam(model.parameters())
model.head = nn.Linear(512, 10)          # replaced after: the new head is in no optimizer
```""",
    advice="""
1. Build the optimizer last.
2. Half precision: float32 master weights.
3. Otherwise raise the learning rate.""",
    references=("PyTorch documentation, torch.optim: constructing an optimizer",),
)

RULE = Rule(
    code="GS502",
    name="no-update",
    severity="warning",
    summary="Weights get a gradient and the optimizer does not change them, or hardly.",
    thresholds=(levels.SMALL_UPDATE, levels.FOLLOWED_GRADIENT),
    check=check,
    doc=DOC,
)
