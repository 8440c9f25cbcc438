"""Signal: does information survive on the way up: similar tokens, saturated and dead units, attention entropy."""

from __future__ import annotations

from dataclasses import dataclass

from gradscope.metrics.facts import Facts
from gradscope.report.html.chart import DOTS_UP_TO, Axis, Chart, Role, Series
from gradscope.report.html.panel import Column, Panel, Picture, Table, picture
from gradscope.report.html.views.places import shown_name
from gradscope.report.html.wording import count, number, percent


@dataclass(frozen=True)
class Measure:
    """One observed metric that the panel draws: its name in the record, what to call it, and how to read it."""

    metric: str
    title: str
    axis: str
    reading: str
    as_share: bool = True


MEASURES = (
    Measure(
        "token_cosine",
        "How alike tokens have become",
        "mean cosine",
        "Near 1 all tokens look the same to the next layer.",
    ),
    Measure(
        "sample_cosine",
        "How alike samples have become",
        "mean cosine",
        "Near 1 all samples look the same to the next layer.",
    ),
    Measure(
        "saturated_fraction",
        "Saturated units",
        "share of values",
        "Saturated units sit on the flat part of their activation and pass hardly any gradient.",
    ),
    Measure(
        "dead_fraction", "Dead units", "share of units", "Dead units are off for every sample and pass no gradient."
    ),
    Measure(
        "attention_entropy",
        "Attention entropy",
        "entropy ÷ its maximum",
        "1 looks everywhere alike, 0 at one place only.",
    ),
    Measure(
        "activation_peak",
        "Largest activation against the usual one",
        "largest ÷ RMS",
        "A few hundred and more are massive activations, which narrow formats cannot hold.",
        as_share=False,
    ),
)
WHOLE_MODEL = {
    "jacobian_anisotropy": "Jacobian anisotropy (1 is even; above 40 few directions pass)",
    "amplification": "Output change under 1 % weight noise, relative",
    "shattering_cosine": "Cosine of input gradients under 5 % input noise",
    "gradient_cosine": "Cosine of the gradients of two halves of the batch",
    "attention_logit_max": "Largest attention logit",
}
READING = "Gradients of a good size are worth little when the signal they belong to is gone: so look at both."
MISSING = "No token, sample or unit statistics were recorded, so there is nothing to say about the signal."


def signal_panel(facts: Facts) -> Panel:
    """Build the panel."""
    parts: list[Picture | Table] = [picture(chart) for measure in MEASURES if (chart := measure_chart(facts, measure))]
    whole = [(words, *_ends(facts, metric)) for metric, words in WHOLE_MODEL.items() if facts.observed(metric)]
    if whole:
        steps = f"step {min(facts.steps)}", "last watched step"
        parts.insert(
            0,
            Table(
                "One number for the whole model",
                (Column("measure"), Column(steps[0], "number"), Column(steps[1], "number")),
                whole,
            ),
        )
    if not parts:
        return Panel("signal", "Signal", "Signal", missing=MISSING)
    return Panel("signal", "Signal", "Signal", _lead(facts), tuple(parts), reading=READING)


def _ends(facts: Facts, metric: str) -> tuple[float | None, float | None]:
    first, last = facts.observed(metric), facts.observed_later(metric)
    return max(first.values(), default=None), max(last.values(), default=None)


def _lead(facts: Facts) -> str:
    for metric, what in (("token_cosine", "tokens"), ("sample_cosine", "samples")):
        value, later = facts.last_cosine(metric), facts.last_cosine(metric, later=True)
        if value is not None:
            words = f"At the loss end the mean cosine between {what} is {number(value)}"
            return f"{words}, at the last watched step {number(later)}." if later is not None else f"{words}."
    for metric, what in (("dead_fraction", "dead"), ("saturated_fraction", "saturated")):
        values = facts.observed(metric)
        if values:
            return f"At most {percent(max(values.values()))} of the units of a module are {what}."
    return ""


def measure_chart(facts: Facts, measure: Measure) -> Chart | None:
    """Draw one measure per place, at its first and last step; None where it was not measured at two places."""
    first, last = facts.observed(measure.metric), facts.observed_later(measure.metric)
    places = _ordered(facts, {**first, **last})
    if len(places) < 2:  # noqa: PLR2004 - a line needs two points
        return None
    steps = sorted(facts.observations[measure.metric])
    layers = []
    roles: tuple[Role, Role] = ("main", "branch")
    for step, values, role in zip((steps[0], steps[-1]), (first, last), roles, strict=True):
        if values:
            heights = [values.get(place) for place in places]
            dots = len(places) <= DOTS_UP_TO
            layers.append(Series(f"step {step}", range(len(places)), heights, role, dots=dots))
    lowest = min((y for layer in layers for y in layer.y if y is not None), default=0.0)
    return Chart(
        f"chart-{measure.metric.replace('_', '-')}",
        measure.title,
        f"{measure.reading} {count(len(places), 'place')}, from {number(min(first.values(), default=None))} "
        f"to {number(max(first.values(), default=None))} at step {steps[0]}.",
        Axis("depth: input → loss", names=tuple(shown_name(module) for module, _ in places)),
        Axis(measure.axis, low=-1.0 if lowest < 0 else 0.0, high=1.0 if measure.as_share else None),
        tuple(layers),
        height=260,
    )


def _ordered(facts: Facts, values: dict[tuple[str, int], float]) -> list[tuple[str, int]]:
    """Order places from the input to the loss: by the order in which their calls ended, else as recorded."""
    calls = facts.recording.tables["calls"]
    order = {(module, call): row for row, (module, call) in enumerate(zip(calls["module"], calls["call"], strict=True))}
    return sorted(values, key=lambda place: order.get(place, len(order)))
