"""The depth profile: the size of the gradient from the input to the loss, and what theory expects of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gradscope.metrics.depth import DepthProfile, Station
from gradscope.metrics.expected import expected_decades
from gradscope.metrics.facts import Facts
from gradscope.metrics.spread import spread
from gradscope.report.html.chart import DOTS_UP_TO, Axis, Chart, Mark, Number, Role, Series, Zone
from gradscope.report.html.panel import Column, Panel, Table, picture
from gradscope.report.html.scale import finite
from gradscope.report.html.sharing import shorten
from gradscope.report.html.views.places import culprits
from gradscope.report.html.views.through_time import time_chart
from gradscope.report.html.wording import change, compared, count
from gradscope.rules.finding import Diagnosis

FAMILIES = ("GS101", "GS102", "GS103", "GS104", "GS105", "GS106", "GS2")
"""Rules whose culprit is a place on the stream."""
MAX_MARKS = 3
"""Labels beyond three cover one another; the findings list has them all."""
TABLE_ROWS = 40
NO_STREAM = "No path from the input to the loss with at least three places was found, so there is no depth to plot."
NO_RATIO = (
    "The gradient at the loss end is zero, not finite or unknown, so the other places cannot be compared with it."
)


def profile_panel(facts: Facts, diagnosis: Diagnosis) -> Panel:
    """Build the panel."""
    base = Panel(
        "profile",
        "Gradient along the depth",
        "Depth",
        reading="Left is the input, right the loss. A flat line means that every layer hears the loss equally loudly. "
        "A line that falls to the left means vanishing gradients, one that rises to the left exploding ones. "
        "The vertical axis counts in factors, not in steps.",
    )
    profiles = list(facts.profiles.values())
    time = time_chart(facts, diagnosis)
    parts = [picture(time)] if time else []
    if any(finite(profile.gradient_decades) for profile in profiles):
        chart = profile_chart(facts, diagnosis)
        parts.insert(0, picture(chart, _table(chart)))
        words = lead(facts)
    else:
        words = NO_RATIO if profiles else NO_STREAM
    if not parts:
        return replace(base, missing=words)
    return replace(base, lead=words, parts=tuple(parts))


def lead(facts: Facts) -> str:
    """Say in one or two sentences what the profile shows."""
    profile = facts.profile
    if profile is None:
        return ""
    words = []
    if profile.decades is not None:
        words.append(
            f"At step {profile.step} the gradient at the input end is {compared(profile.decades)} the loss end, "
            f"over {count(profile.num_blocks, 'block')}."
        )
    if profile.lost_below:
        words.append(f"Below {shorten(profile.stations[profile.lost_below].name)} it is {lost_words(profile)}.")
    expected = facts.predicted_decades(profile.step)
    if expected is not None and profile.decades is not None:
        words.append(f"Theory expects it to be {change(expected)} for a stream that grows as this one does.")
    later = facts.later_profile
    if later is not None and later.decades is not None:
        words.append(f"At step {later.step} it is {change(later.decades)}.")
    return " ".join(words)


def lost_words(profile: DepthProfile) -> str:
    """Say what the gradient is at the stations from which on there is none: zero, not finite, or not seen."""
    below = profile.grad_norm[: profile.lost_below]
    if any(norm is not None and not math.isfinite(norm) for norm in below):
        return "not finite"
    return "unknown" if None in below else "exactly zero"


def profile_chart(facts: Facts, diagnosis: Diagnosis) -> Chart:
    """Draw log10 of the gradient, relative to the loss end, against depth."""
    profiles = [profile for profile in facts.profiles.values() if finite(profile.gradient_decades)]
    stations = union(profiles)
    lines = {profile.step: aligned(profile, stations) for profile in profiles}
    layers = [*_spread_layers(lines), *_step_layers(lines)]
    expected = expected_decades(facts, profiles[0])
    if expected is not None:
        law = dict(zip((station.row for station in profiles[0].stations), expected, strict=True))
        layers.append(
            _line("expected for this design", [law.get(station.row) for station in stations], "law", dash=True)
        )
    return Chart(
        "chart-profile",
        "Gradient norm relative to the loss end, against depth",
        lead(facts),
        Axis("depth: input → loss", names=tuple(station.name for station in stations)),
        Axis("gradient, relative to the loss end", log=True),
        tuple(layers),
        zones=_lost(profiles[0]),
        marks=marks(diagnosis, stations, lines, layers[0].y),
    )


def union(profiles: Sequence[DepthProfile]) -> list[Station]:
    """List the stations of all profiles, each once, from the input to the loss."""
    found = {station.row: station for profile in profiles for station in profile.stations}
    return [found[row] for row in sorted(found)]


def aligned(profile: DepthProfile, stations: Sequence[Station]) -> list[Number]:
    """Place a profile's decades on a list of stations; None where it has none."""
    values = dict(zip((station.row for station in profile.stations), profile.gradient_decades, strict=True))
    return [values.get(station.row) for station in stations]


def marks(
    diagnosis: Diagnosis, stations: Sequence[Station], lines: Mapping[int, Sequence[Number]], middle: Sequence[Number]
) -> tuple[Mark, ...]:
    """Ring the culprits on the line of the step they were found at, each with its code and a link to its finding."""
    found = []
    for index, finding in culprits(diagnosis.findings, stations, FAMILIES)[:MAX_MARKS]:
        step = finding.evidence.get("step")
        heights = lines.get(step, middle) if isinstance(step, int) else middle
        label = f"{finding.code} {shorten(stations[index].name, 24)}"
        link = f"#finding-{diagnosis.findings.index(finding) + 1}"
        found.append(Mark(index, heights[index] or 0.0, label, href=link, below=_rises(heights, index)))
    return tuple(found)


def _lost(profile: DepthProfile) -> tuple[Zone, ...]:
    """Mark the stretch that no gradient reaches, where there is no line to see."""
    return (Zone("x", 0, profile.lost_below, lost_words(profile), "bad"),) if profile.lost_below else ()


def _rises(heights: Sequence[Number], index: int) -> bool:
    """Tell whether the line, on the side where a label has room, lies above a place, so that it must stand below."""
    here = heights[index] or 0.0
    away = [
        value for value in (heights[index:] if index < len(heights) / 2 else heights[: index + 1]) if value is not None
    ]
    return sum(away) / len(away) > here if away else False


def _spread_layers(lines: dict[int, list[Number]]) -> list[Series]:
    if len(lines) == 1:
        return []
    spreads = [spread(values) for values in zip(*lines.values(), strict=True)]
    return [
        Series(
            f"median of {len(lines)} steps",
            range(len(spreads)),
            [item.median if item else None for item in spreads],
            low=[item.low if item else None for item in spreads],
            high=[item.high if item else None for item in spreads],
            band_name="5–95 % of steps",
            dots=len(spreads) <= DOTS_UP_TO,
        )
    ]


def _step_layers(lines: dict[int, list[Number]]) -> list[Series]:
    steps = list(lines)
    if len(steps) == 1:
        return [_line(f"step {steps[0]}", lines[steps[0]], "main", dots=True)]
    return [_line(f"step {steps[0]}", lines[steps[0]], "third"), _line(f"step {steps[-1]}", lines[steps[-1]], "other")]


def _line(name: str, values: Sequence[Number], role: Role, *, dash: bool = False, dots: bool = False) -> Series:
    return Series(name, range(len(values)), values, role, dash=dash, dots=dots and len(values) <= DOTS_UP_TO)


def _table(chart: Chart) -> Table:
    """Give the chart's lines as numbers, at evenly chosen places where there are many."""
    names = chart.x.names
    chosen = sorted({round(place * (len(names) - 1) / (TABLE_ROWS - 1)) for place in range(TABLE_ROWS)})
    series = [layer for layer in chart.layers if isinstance(layer, Series)]
    rows = [[names[place], *(layer.y[place] for layer in series)] for place in chosen if place < len(names)]
    columns = (Column("place", "place"), *(Column(f"{layer.name}, decades", "number") for layer in series))
    return Table("log10 of the gradient norm relative to the loss end", columns, rows)
