"""Signal: does information survive on the way up: similar tokens, saturated and dead units, attention entropy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradscope.metrics.facts import Facts
from gradscope.report.html.chart import DOTS_UP_TO, Axis, Chart, Mark, Role, Series
from gradscope.report.html.panel import Column, Panel, Picture, Table, picture
from gradscope.report.html.sharing import shorten
from gradscope.report.html.views.places import shown_name
from gradscope.report.html.wording import cosine, count, number, percent
from gradscope.rules.finding import Diagnosis


@dataclass(frozen=True)
class Measure:
    """One observed metric that the panel draws: its name, what to call it, how to read it, which rule judges it."""

    metric: str
    title: str
    axis: str
    reading: str
    rule: str
    as_share: bool = True


MEASURES = (
    Measure(
        "token_cosine",
        "How alike tokens have become",
        "mean cosine",
        "Near 1 all tokens look the same to the next layer.",
        "GS301",
    ),
    Measure(
        "sample_cosine",
        "How alike samples have become",
        "mean cosine",
        "Near 1 all samples look the same to the next layer.",
        "GS301",
    ),
    Measure(
        "saturated_fraction",
        "Saturated units",
        "share of values",
        "Saturated units sit on the flat part of their activation and pass hardly any gradient.",
        "GS302",
    ),
    Measure(
        "dead_fraction",
        "Dead units",
        "share of units",
        "Dead units are off for every sample and pass no gradient.",
        "GS303",
    ),
    Measure(
        "attention_entropy",
        "Attention entropy",
        "entropy ÷ its maximum",
        "1 looks everywhere alike, 0 at one place only.",
        "GS304",
    ),
    Measure(
        "activation_peak",
        "Largest activation against the usual one",
        "largest ÷ RMS",
        "A few hundred and more are massive activations, which narrow formats cannot hold.",
        "GS306",
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
SHARE_TOP = 1.03
"""Where a share's axis ends: a little above 1, so that a line at 1 is seen."""
MISSING = "No token, sample or unit statistics were recorded, so there is nothing to say about the signal."


def signal_panel(facts: Facts, diagnosis: Diagnosis) -> Panel:
    """Build the panel."""
    charts = [measure_chart(facts, measure, diagnosis) for measure in MEASURES]
    parts: list[Picture | Table] = [picture(chart) for chart in charts if chart]
    whole = [(words, *_ends(facts, metric)) for metric, words in WHOLE_MODEL.items() if facts.observed(metric)]
    if whole:
        steps = f"step {min(facts.steps)}", "last watched step"
        parts.insert(
            0,
            Table(
                "One number for the whole model",
                (Column("measure", "prose"), Column(steps[0], "number"), Column(steps[1], "number")),
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
            words = f"At the loss end the mean cosine between {what} is {cosine(value)} at step {facts.steps[0]}"
            return f"{words}, and {cosine(later)} at step {facts.steps[-1]}." if later is not None else f"{words}."
    for metric, what in (("dead_fraction", "dead"), ("saturated_fraction", "saturated")):
        values = facts.observed(metric)
        if values:
            return f"At most {percent(max(values.values()))} of the units of a module are {what}."
    return ""


def measure_chart(facts: Facts, measure: Measure, diagnosis: Diagnosis) -> Chart | None:
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
        Axis(measure.axis, low=-1.0 if lowest < 0 else 0.0, high=SHARE_TOP if measure.as_share else None),
        tuple(layers),
        _marks(diagnosis, measure, places, layers[0]) if layers and _is_judged(facts, measure) else (),
        height=260,
    )


def _is_judged(facts: Facts, measure: Measure) -> bool:
    """Tell whether the measure's rule looked at it: at samples only where there are no tokens."""
    return measure.metric != "sample_cosine" or not facts.observed("token_cosine")


def _marks(diagnosis: Diagnosis, measure: Measure, places: Sequence[tuple[str, int]], line: Series) -> tuple[Mark, ...]:
    """Ring the first place that a rule blames for this measure."""
    for order, finding in enumerate(diagnosis.findings, start=1):
        place = (finding.module, finding.call)
        if finding.code == measure.rule and finding.severity != "info" and place in places:
            x = places.index(place)
            height = line.y[x] or 0.0
            label = f"{finding.code} {shorten(shown_name(finding.module), 24)}"
            return (Mark(x, height, label, href=f"#finding-{order}", below=height > SHARE_TOP / 2),)
    return ()


def _ordered(facts: Facts, values: dict[tuple[str, int], float]) -> list[tuple[str, int]]:
    """Order places from the input to the loss: by the order in which their calls ended, else as recorded."""
    calls = facts.recording.tables["calls"]
    order = {(module, call): row for row, (module, call) in enumerate(zip(calls["module"], calls["call"], strict=True))}
    return sorted(values, key=lambda place: order.get(place, len(order)))
