"""The frame plotly draws a chart in: axes with our ticks, ranges of number formats, limits, the colour scale."""

from __future__ import annotations

from typing import Any

from gradscope.report.html import raster
from gradscope.report.html.chart import Axis, Bars, Chart, Heatmap, Zone
from gradscope.report.html.plot_text import plain, rounded
from gradscope.report.html.scale import ends, tick_text, ticks
from gradscope.report.html.svg import x_ticks, y_ticks

TICK_CHARACTERS = 22
NAME_PIXELS = 3.4
"""Half the width of a character of a tick, in pixels."""
RANGE_ROW = 0.055
"""Height of one row of ranges under the bars, as a share of the frame."""
Parts = list[dict[str, Any]]


def chart_layout(chart: Chart) -> dict[str, Any]:
    """Describe the frame of a chart: the same ends and ticks as the drawing it replaces."""
    x_low, x_high, y_low, y_high = ends(chart)
    layout = plain_frame(chart.x, chart.y, chart.height)
    layout["xaxis"]["range"] = [x_low, x_high]
    layout["yaxis"]["range"] = rounded([y_low, y_high])
    if chart.x.names:
        chosen = x_ticks(chart, x_low, x_high)
        layout["xaxis"] |= {
            "tickvals": [place for place, _, _ in chosen],
            "ticktext": [plain(name, TICK_CHARACTERS) for _, name, _ in chosen],
            "tickangle": 0,
        }
    values = y_ticks(chart, y_low, y_high)
    layout["yaxis"] |= {"tickvals": values, "ticktext": [tick_text(value, chart.y) for value in values]}
    if any(isinstance(layer, Bars) for layer in chart.layers):
        layout["bargap"] = 0
    shapes, notes = _zones(chart)
    return {**layout, "shapes": shapes, "annotations": notes}


def plain_frame(x: Axis, y: Axis, height: int) -> dict[str, Any]:
    """Describe a frame without data."""
    return {
        "height": height,
        "showlegend": False,
        "margin": {"l": 76, "r": _right_margin(x), "t": 30, "b": 52},
        "hovermode": "closest",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": "@ink"},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "@faint", "activecolor": "@main"},
        "xaxis": {
            "title": {"text": plain(x.title), "standoff": 8},
            "zeroline": False,
            "showgrid": False,
            "ticklabeloverflow": "allow",
            "linecolor": "@line",
            "showline": True,
        },
        "yaxis": {"title": {"text": plain(y.title), "standoff": 4}, "gridcolor": "@grid", "zeroline": False},
    }


def _right_margin(x: Axis) -> int:
    """Leave room for half of the last name, which stands centred under the end of the axis."""
    return max(24, round(NAME_PIXELS * min(len(x.names[-1]), TICK_CHARACTERS))) if x.names else 24


def named_axis(axis: Axis) -> dict[str, Any]:
    """Describe an axis of rows or columns, a few of them named."""
    places = raster.places(len(axis.names))
    return {
        "tickvals": places,
        "ticktext": [plain(axis.names[place], TICK_CHARACTERS) for place in places],
        "tickangle": 0,
        "range": [-0.5, len(axis.names) - 0.5],
    }


def colour_scale(heatmap: Heatmap) -> dict[str, Any]:
    """Describe the colour bar, in powers of ten."""
    values = ticks(-heatmap.limit, heatmap.limit, 6, whole=True)
    words = [tick_text(value, Axis("", log=True)) for value in values]
    return {"title": {"text": plain(heatmap.unit)}, "thickness": 14, "tickvals": values, "ticktext": words}


def _zones(chart: Chart) -> tuple[Parts, Parts]:
    """Describe ranges and limits: (shapes, annotations)."""
    shapes: Parts = []
    notes: Parts = []
    ranges = [zone for zone in chart.zones if zone.axis == "x"]
    for zone in chart.zones:
        note = {
            "showarrow": False,
            "text": plain(zone.label),
            "font": {"size": 11, "color": "@soft"},
            "xanchor": "right",
            "yanchor": "bottom",
        }
        if zone.axis == "y":
            shapes.append(_across(zone))
            notes.append({**note, "xref": "paper", "x": 0.01, "xanchor": "left", "y": zone.end, "yanchor": "top"})
        else:
            height = RANGE_ROW * (len(ranges) - ranges.index(zone))
            shape = _range(zone, height, *ends(chart)[:2])
            shapes.append(shape)
            notes.append({**note, "yref": "paper", "x": shape["x1"], "y": height})
    return shapes, notes


def _across(zone: Zone) -> dict[str, Any]:
    """Describe a limit (one height) or a band of heights across the frame."""
    single = zone.start == zone.end
    return {
        "type": "line" if single else "rect",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": zone.start,
        "y1": zone.end,
        "line": {"color": f"@{zone.role}", "dash": "dot", "width": 1.5 if single else 0},
        "fillcolor": f"@{zone.role}/0.1",
        "layer": "below",
    }


def _range(zone: Zone, height: float, low: float, high: float) -> dict[str, Any]:
    """Describe what a number format holds, as a line under the bars."""
    return {
        "type": "line",
        "yref": "paper",
        "x0": max(zone.start, low),
        "x1": min(zone.end, high),
        "y0": height,
        "y1": height,
        "line": {"color": f"@{zone.role}", "width": 3},
        "layer": "above",
    }
