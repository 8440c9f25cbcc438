"""Updates: how far one optimizer step moves each weight matrix, relative to its size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradscope.metrics.columns import log10_ratio
from gradscope.metrics.facts import Facts
from gradscope.metrics.spread import spread
from gradscope.metrics.weights import Parameter, gradient_to_weight, update_to_weight
from gradscope.report.html.chart import Axis, Chart, Number, Role, Series, Zone
from gradscope.report.html.panel import Panel, picture
from gradscope.report.html.scale import finite
from gradscope.report.html.svg import thinned
from gradscope.report.html.wording import count, number

USUAL_LOG10 = (-4.0, -2.0)
"""log10 of the usual update-to-weight ratio: 1e-4 to 1e-2, about 1e-3 being aimed for."""
READING = (
    "A dot is one weight matrix, from the input to the loss. The shaded band is the usual range; 1 in 1,000 is typical."
)
GROUPS: tuple[tuple[str, tuple[str | None, ...], Role], ...] = (
    ("query and key", ("query", "key"), "branch"),
    ("value and attention output", ("value", "output", "query_key_value"), "third"),
    ("other weights", (None,), "main"),
)
"""Attention starves its queries and keys first, so that they are told apart: (name, roles, colour)."""

Ratio = Callable[[Parameter], Number]


def updates_panel(facts: Facts) -> Panel:
    """Build the panel."""
    matrices = [parameter for parameter in facts.trainable if parameter.is_matrix]
    steps = [
        step for step, rows in sorted(facts.update_norms.items()) if any(norm is not None for norm in rows.values())
    ]
    if not matrices or not steps:
        why = "No weight matrix is trainable" if not matrices else "No optimizer step was taken or recorded"
        return Panel(
            "updates", "Updates", "Updates", missing=f"{why}, so there is no update to compare with the weights."
        )
    chart = update_chart(facts, matrices, steps[-1])
    return Panel(
        "updates",
        "Updates",
        "Updates",
        chart.summary,
        (picture(chart), picture(gradient_chart(facts, matrices))),
        reading=READING,
    )


def update_chart(facts: Facts, matrices: Sequence[Parameter], step: int) -> Chart:
    """Draw the update-to-weight ratio of every matrix at one step."""
    updates, weights = facts.update_norms[step], facts.weight_norms.get(step, {})

    def ratio(parameter: Parameter) -> Number:
        return log10_ratio(update_to_weight(updates.get(parameter.row), weights.get(parameter.row)), 1.0)

    middle = spread(map(ratio, matrices))
    words = (
        "No matrix was changed by the step."
        if middle is None
        else (
            f"At step {step} the optimizer moves the typical weight matrix by {number(10**middle.median)} of its size "
            f"(5–95 %: {number(10**middle.low)} to {number(10**middle.high)}; "
            f"{count(len(matrices), 'matrix', 'matrices')})."
        )
    )
    return _chart(
        "chart-updates",
        f"Update relative to weight at step {step}",
        words,
        matrices,
        ratio,
        "update ÷ weight",
        (Zone("y", *USUAL_LOG10, "usual"),),
    )


def gradient_chart(facts: Facts, matrices: Sequence[Parameter]) -> Chart:
    """Draw the gradient-to-weight ratio of every matrix at the first step."""
    step = min(facts.parameter_gradients, default=0)
    gradients, weights = facts.parameter_gradients.get(step, {}), facts.weight_norms.get(step, {})

    def ratio(parameter: Parameter) -> Number:
        return log10_ratio(gradient_to_weight(gradients.get(parameter.row), weights.get(parameter.row)), 1.0)

    known = finite(map(ratio, matrices))
    zeros = sum(1 for parameter in matrices if gradients.get(parameter.row) == 0.0)
    absent = sum(1 for parameter in matrices if gradients.get(parameter.row) is None)
    words = f"From {number(10 ** min(known))} to {number(10 ** max(known))}." if known else "No matrix has a gradient."
    words += f" Exactly zero: {zeros}. No gradient arrived: {absent}." if zeros or absent else ""
    return _chart(
        "chart-weights", f"Gradient relative to weight at step {step}", words, matrices, ratio, "gradient ÷ weight"
    )


def _chart(
    name: str,
    title: str,
    words: str,
    matrices: Sequence[Parameter],
    ratio: Ratio,
    axis: str,
    zones: tuple[Zone, ...] = (),
) -> Chart:
    layers = []
    known_roles = {role for _, roles, _ in GROUPS for role in roles}
    for group, roles, colour in GROUPS:
        inside = [(x, p) for x, p in enumerate(matrices) if (p.role if p.role in known_roles else None) in roles]
        points = thinned([x for x, _ in inside], [ratio(p) for _, p in inside])
        if points:
            layers.append(
                Series(group, [x for x, _ in points], [y for _, y in points], colour, dots=True, joined=False)
            )
    return Chart(
        name,
        title,
        words,
        Axis("weight matrices: input → loss", names=tuple(p.name for p in matrices)),
        Axis(axis, log=True),
        tuple(layers),
        zones=zones,
        height=300,
    )
