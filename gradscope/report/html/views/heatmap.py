"""Layer by step: how the depth profile changes while the model trains."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.report.html.chart import Axis, Heatmap, Number
from gradscope.report.html.panel import Panel, picture
from gradscope.report.html.scale import finite
from gradscope.report.html.views.profile import aligned, union
from gradscope.report.html.wording import count

MAX_COLUMNS = 400
"""Neighbouring places are drawn together beyond this: a screen has few more columns, and the file stays light."""
READING = (
    "Each row is a training step, each column a place along the depth. White is as large as at the loss end; blue is "
    "smaller (vanishing), brown larger (exploding)."
)
SMALLEST_LIMIT = 1.0


def heatmap_panel(facts: Facts) -> Panel:
    """Build the panel."""
    title = "Depth over training steps"
    profiles = [profile for profile in facts.profiles.values() if finite(profile.gradient_decades)]
    if len(profiles) < 2:  # noqa: PLR2004 - a change needs two steps
        only = (
            "Only one step was watched"
            if len(facts.steps) == 1
            else "Fewer than two watched steps have a depth profile"
        )
        return Panel("heatmap", title, "Steps", missing=f"{only}, so there is no change over steps to show.")
    stations = union(profiles)
    rows = [aligned(profile, stations) for profile in profiles]
    names, cells = pooled([station.name for station in stations], rows)
    limit = max((abs(value) for row in rows for value in finite(row)), default=SMALLEST_LIMIT)
    joined = -(-len(stations) // MAX_COLUMNS)
    heatmap = Heatmap(
        "chart-heatmap",
        "Gradient per place and step, relative to the loss end of that step",
        f"{count(len(stations), 'place')} at {count(len(profiles), 'step')}."
        + (
            f" {joined} neighbouring places share a column; it shows the one farthest from white." if joined > 1 else ""
        ),
        Axis("depth: input → loss", names=tuple(names)),
        Axis("step", names=tuple(f"step {profile.step}" for profile in profiles)),
        cells,
        "relative size",
        max(limit, SMALLEST_LIMIT),
        height=min(120 + 22 * len(profiles), 420),
    )
    return Panel("heatmap", title, "Steps", heatmap.summary, (picture(heatmap),), reading=READING)


def pooled(names: Sequence[str], rows: Sequence[Sequence[Number]]) -> tuple[list[str], list[list[Number]]]:
    """Join neighbouring columns until at most MAX_COLUMNS are left, keeping the value farthest from zero."""
    joined = -(-len(names) // MAX_COLUMNS)
    starts = range(0, len(names), joined)
    return [names[start] for start in starts], [
        [_farthest(row[start : start + joined]) for start in starts] for row in rows
    ]


def _farthest(values: Sequence[Number]) -> Number:
    return max(finite(values), key=abs, default=None)
