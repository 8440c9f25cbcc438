"""Precision: which gradients narrow number formats would lose, and which additions they would swallow."""

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
from gradscope.report.html.chart import DOTS_UP_TO, Axis, Bars, Chart, Series, Zone
from gradscope.report.html.panel import Column, Panel, Picture, Table, picture
from gradscope.report.html.scale import SUPERSCRIPTS, finite
from gradscope.report.html.views.places import shown_name
from gradscope.report.html.wording import count, percent

FORMAT_TOP_LOG2 = {"float16": 16.0, "bfloat16": 128.0, "float8_e5m2": 15.8, "float8_e4m3": 8.8}
"""log2 of the largest finite value: 65504, 3.4e38, 57344 and 448."""
FORMAT_NAMES = {"float16": "fp16", "bfloat16": "bf16", "float8_e5m2": "fp8 E5M2", "float8_e4m3": "fp8 E4M3"}
MAX_KINDS = 2
SHOWN_LOG2 = (-30, 4)
"""Octaves shown even where there are no bars, so that the ends of fp16 and fp8 are in the picture."""
ROOM_FOR_RANGES = 0.45
"""Room below the bars for the ranges, as a share of the highest bar."""
KINDS = {"parameter": "parameter gradients", "activation": "activation gradients", "call": "activation gradients"}
READING = (
    "The bars count gradient elements by size; one step to the right is twice as large. The lines below them show what "
    "each number format can hold: elements left of a line become zero in that format. A loss scale shifts all bars to "
    "the right."
)
MISSING = "Gradient magnitudes were not recorded, so nothing can be said about number formats."


def precision_panel(facts: Facts) -> Panel:
    """Build the panel."""
    parts: list[Picture | Table] = []
    magnitudes = facts.magnitudes.get(min(facts.magnitudes), ()) if facts.magnitudes else ()
    if any(item.num_nonzero for item in magnitudes):
        parts += [picture(magnitude_chart(magnitudes)), format_table(magnitudes)]
    absorbed = absorption_chart(facts)
    if absorbed:
        parts.append(picture(absorbed))
    if not parts:
        return Panel("precision", "Precision", "Precision", missing=MISSING)
    return Panel("precision", "Precision", "Precision", _lead(magnitudes), tuple(parts), reading=READING)


def _lead(magnitudes: Sequence[Magnitudes]) -> str:
    lost = fraction_below(magnitudes, FORMAT_FLOOR_LOG2["float16"])
    if lost is None:
        return ""
    scale = recommended_loss_scale_log2(largest_log2(magnitudes))
    words = f"In fp16 without a loss scale {percent(lost)} of the gradient elements would become zero"
    if scale is not None and lost > 0:
        kept = fraction_below(magnitudes, FORMAT_FLOOR_LOG2["float16"] - scale)
        words += f", with a loss scale of {_power(scale)} {percent(kept)}"
    return words + "."


def pooled(magnitudes: Sequence[Magnitudes]) -> dict[str, dict[int, int]]:
    """Add the histograms up: kind -> octave -> number of elements."""
    found: dict[str, dict[int, int]] = {}
    for item in magnitudes:
        octaves = found.setdefault(KINDS.get(item.kind, f"{item.kind} gradients"), {})
        for place, number in enumerate(item.counts):
            if number:
                octaves[item.first_log2 + place] = octaves.get(item.first_log2 + place, 0) + number
    return found


def magnitude_chart(magnitudes: Sequence[Magnitudes]) -> Chart:
    """Draw the share of gradient elements per octave, over the ranges of the number formats."""
    layers = _magnitude_layers(magnitudes)
    octaves = [x for layer in layers for x in layer.x]
    top = max(finite(y for layer in layers for y in layer.y), default=1.0)
    zones = [
        Zone("x", FORMAT_FLOOR_LOG2[name], FORMAT_TOP_LOG2[name], words, "third")
        for name, words in FORMAT_NAMES.items()
    ]
    zeros = sum(item.zeros for item in magnitudes)
    elements = zeros + sum(item.num_nonzero for item in magnitudes)
    return Chart(
        "chart-magnitudes",
        "Sizes of gradient elements, and what number formats hold",
        f"{count(elements, 'element')}; {percent(zeros / elements)} exactly zero already. {_lead(magnitudes)}",
        Axis(
            "log2 of the gradient element", low=min(*octaves, SHOWN_LOG2[0]) - 2, high=max(*octaves, SHOWN_LOG2[1]) + 3
        ),
        Axis("share of elements", low=-ROOM_FOR_RANGES * top),
        layers,
        zones=tuple(zones),
        height=360,
    )


def _magnitude_layers(magnitudes: Sequence[Magnitudes]) -> tuple[Bars | Series, ...]:
    """Draw the first kind of gradients as bars, the second as a line over them."""
    layers: list[Bars | Series] = []
    for kind, octaves in list(pooled(magnitudes).items())[:MAX_KINDS]:
        total = sum(octaves.values())
        if not total:
            continue
        span = range(min(octaves), max(octaves) + 1)
        shares = [octaves.get(octave, 0) / total for octave in span]
        if layers:
            layers.append(Series(kind, [octave + 0.5 for octave in span], shares, "branch"))
        else:
            layers.append(Bars(kind, list(span), shares))
    return tuple(layers)


def format_table(magnitudes: Sequence[Magnitudes]) -> Table:
    """List what each format would lose, without a loss scale and with the one that suits."""
    scale = recommended_loss_scale_log2(largest_log2(magnitudes))
    rows = []
    for name, words in FORMAT_NAMES.items():
        floor = FORMAT_FLOOR_LOG2[name]
        scaled = fraction_below(magnitudes, floor - scale) if scale is not None else None
        rows.append(
            (
                words,
                f"2{str(floor).translate(SUPERSCRIPTS)}",
                percent(fraction_below(magnitudes, floor)),
                percent(scaled),
            )
        )
    with_scale = f"lost at loss scale {_power(scale)}" if scale is not None else "lost with a loss scale"
    return Table(
        "Gradient elements that would become zero",
        (
            Column("format"),
            Column("becomes zero below", "number"),
            Column("lost", "number", "underflow"),
            Column(with_scale, "number", "loss scale"),
        ),
        rows,
    )


def _power(exponent: int) -> str:
    return "2" + str(exponent).translate(SUPERSCRIPTS)


def absorption_chart(facts: Facts) -> Chart | None:
    """Draw the share of each residual sum that narrow addition would leave unchanged."""
    layers = []
    places = list(facts.observed("absorption_bf16") or facts.observed("absorption_fp16"))
    if len(places) < 2:  # noqa: PLR2004 - a line needs two points
        return None
    for metric, name in (("absorption_bf16", "bf16"), ("absorption_fp16", "fp16")):
        values = facts.observed(metric)
        if values:
            layers.append(
                Series(
                    name,
                    range(len(places)),
                    [values.get(place) for place in places],
                    "main" if name == "bf16" else "branch",
                    dots=len(places) <= DOTS_UP_TO,
                )
            )
    worst = max(max(facts.observed(metric).values(), default=0.0) for metric in ("absorption_bf16", "absorption_fp16"))
    return Chart(
        "chart-absorption",
        "Residual additions swallowed by rounding",
        f"Share of elements of each residual sum that a narrow format leaves unchanged; at most {percent(worst)}.",
        Axis("residual additions: input → loss", names=tuple(shown_name(module) for module, _ in places)),
        Axis("share of elements", low=0.0),
        tuple(layers),
        height=240,
    )
