"""Updates: how far one optimizer step moves each weight matrix, relative to its size."""

from __future__ import annotations

import math

from gradscope.metrics.columns import log10_ratio
from gradscope.metrics.facts import Facts
from gradscope.metrics.spread import spread
from gradscope.metrics.weights import gradient_to_weight, update_to_weight
from gradscope.report.html.chart import Axis, Chart, Number, Role, Series, Zone
from gradscope.report.html.panel import Panel, picture
from gradscope.report.html.wording import count, number

USUAL_LOG10 = (-4.0, -2.0)
"""log10 of the usual update-to-weight ratio: 1e-4 to 1e-2, about 1e-3 being aimed for."""
READING = "A dot per weight matrix, from the input to the loss. The shaded band is the usual range; 1 in 1,000 is typical."
DOTS_UP_TO = 120


def updates_panel(facts: Facts) -> Panel:
    """Build the panel."""
    title = "Updates"
    matrices = [parameter for parameter in facts.trainable if parameter.is_matrix]
    steps = [step for step in sorted(facts.update_norms) if any(v is not None for v in facts.update_norms[step].values())]
    if not matrices or not steps:
        why = ("No weight matrix is trainable" if not matrices else "No optimizer step was taken or recorded")
        return Panel("updates", title, "Updates", missing=f"{why}, so there is no update to compare with the weights.")
    names = tuple(parameter.name for parameter in matrices)
    layers = []
    roles: tuple[Role, Role] = ("main", "branch")
    for step, role in zip(dict.fromkeys((steps[0], steps[-1])), roles, strict=False):
        values: list[Number] = [
            log10_ratio(update_to_weight(facts.update_norms[step].get(p.row), facts.weight_norms[step].get(p.row)), 1.0)
            for p in matrices
        ]
        layers.append(Series(f"step {step}", range(len(names)), values, role, dots=len(names) <= DOTS_UP_TO))
    middle = spread(layers[-1].y)
    text = "" if middle is None else (
        f"At step {steps[-1]} one step moves the typical weight matrix by {number(10**middle.median)} of its size "
        f"(5–95 %: {number(10**middle.low)} to {number(10**middle.high)}, {count(len(names), 'matrix', 'matrices')})."
    )
    chart = Chart(
        "chart-updates", "Update relative to weight, per weight matrix", text,
        Axis("weight matrices: input → loss", names=names), Axis("update ÷ weight", log=True), tuple(layers),
        zones=(Zone("y", *USUAL_LOG10, "usual"),),
    )
    return Panel("updates", title, "Updates", text, (picture(chart), picture(_gradients(facts))), reading=READING)


def _gradients(facts: Facts) -> Chart:
    """Draw gradient to weight per weight matrix at the first step."""
    matrices = [parameter for parameter in facts.trainable if parameter.is_matrix]
    step = min(facts.parameter_gradients, default=0)
    grads, weights = facts.parameter_gradients.get(step, {}), facts.weight_norms.get(step, {})
    values = [log10_ratio(gradient_to_weight(grads.get(p.row), weights.get(p.row)), 1.0) for p in matrices]
    zeros = sum(1 for p in matrices if grads.get(p.row) == 0.0)
    absent = sum(1 for p in matrices if grads.get(p.row) is None)
    known = [value for value in values if value is not None and math.isfinite(value)]
    words = f"From {number(10 ** min(known))} to {number(10 ** max(known))}." if known else "No matrix has a gradient above zero."
    return Chart(
        "chart-weights", f"Gradient relative to weight, per weight matrix, at step {step}",
        f"{words} Exactly zero: {zeros}. No gradient arrived: {absent}.",
        Axis("weight matrices: input → loss", names=tuple(p.name for p in matrices)), Axis("gradient ÷ weight", log=True),
        (Series("", range(len(values)), values, "main", dots=len(values) <= DOTS_UP_TO),), height=280,
    )
