"""Hand a chart to plotly: a plain dict of traces and layout, a handful of traces however deep the model is.

Colours are written as roles ("@main") and the names on hover as "@names", so that they travel once: the page's script
and `notebook.figure` put the theme's colours and the names in their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradscope.report.html.chart import Bars, Chart, Figure, Heatmap, Series
from gradscope.report.html.plot_layout import chart_layout, colour_scale, named_axis, plain_frame
from gradscope.report.html.plot_text import plain, rounded
from gradscope.report.html.scale import ends

CONFIG = {
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
}
"""Nothing leaves the page: the upload button and the server behind it are off."""
NAMES = "@names"
CELL_DIGITS = 3


def spec(figure: Figure) -> dict[str, Any]:
    """Describe a chart as plotly's data and layout, with the names of its places."""
    return _heatmap(figure) if isinstance(figure, Heatmap) else _chart(figure)


def _chart(chart: Chart) -> dict[str, Any]:
    traces: list[dict[str, Any]] = []
    for layer in chart.layers:
        traces += [_bars(layer)] if isinstance(layer, Bars) else _series(layer, chart)
    if chart.marks:
        traces.append(_marks(chart))
    return {"data": traces, "layout": chart_layout(chart), "names": {"x": [plain(name) for name in chart.x.names]}}


def _places(x: Sequence[float]) -> dict[str, Any]:
    """Write positions, as start and step where they simply count."""
    return {"x0": 0, "dx": 1} if x == range(len(x)) else {"x": list(x)}


def _series(series: Series, chart: Chart) -> list[dict[str, Any]]:
    colour = f"@{series.role}"
    traces = _band(series) if series.low and series.high else []
    line: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines" * series.joined + "+" * (series.joined and series.dots) + "markers" * series.dots,
        "name": plain(series.name),
        **_places(series.x),
        "y": rounded(series.y),
        "hovertemplate": ("%{text}: " if chart.x.names else "%{x}: ")
        + ("10<sup>%{y:.2f}</sup>" if chart.y.log else "%{y:.4g}"),
        "line": {"color": colour, "width": 2.2, "dash": "dash" if series.dash else "solid"},
    }
    if series.dots:
        line["marker"] = {"color": colour, "size": 5}
    if chart.x.names:
        line["text"] = NAMES
    if series.area:
        first = next(layer for layer in chart.layers if isinstance(layer, Series) and layer.area)
        line |= {"fill": "tozeroy" if series is first else "tonexty", "fillcolor": f"{colour}/0.45"}
    return [*traces, line]


def _band(series: Series) -> list[dict[str, Any]]:
    edge = {"type": "scatter", "mode": "lines", **_places(series.x), "line": {"width": 0}, "hoverinfo": "skip"}
    filled = {"fill": "tonexty", "fillcolor": f"@{series.role}/0.2", "name": plain(series.band_name)}
    return [{**edge, "y": rounded(series.low), "showlegend": False}, {**edge, "y": rounded(series.high), **filled}]


def _bars(bars: Bars) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": plain(bars.name),
        "x": list(bars.x),
        "y": rounded(bars.y),
        "width": bars.width,
        "offset": 0,
        "marker": {"color": f"@{bars.role}"},
        "hovertemplate": "%{x}: %{y:.3g}",
    }


def _marks(chart: Chart) -> dict[str, Any]:
    low, high, _, _ = ends(chart)
    return {
        "type": "scatter",
        "mode": "markers+text",
        "showlegend": False,
        "x": [mark.x for mark in chart.marks],
        "y": rounded(mark.y for mark in chart.marks),
        "text": [plain(mark.label) for mark in chart.marks],
        "textposition": [
            f"{'bottom' if mark.below else 'top'} {'right' if mark.x < (low + high) / 2 else 'left'}"
            for mark in chart.marks
        ],
        "marker": {"size": 14, "color": "rgba(0,0,0,0)", "line": {"width": 3, "color": "@bad"}},
        "textfont": {"color": "@bad", "size": 13},
        "hovertemplate": "%{text}",
        "cliponaxis": False,
    }


def _heatmap(heatmap: Heatmap) -> dict[str, Any]:
    layout = plain_frame(heatmap.x, heatmap.y, heatmap.height)
    layout["xaxis"] |= named_axis(heatmap.x)
    layout["yaxis"] |= named_axis(heatmap.y)
    trace = {
        "type": "heatmap",
        "z": [rounded(row, CELL_DIGITS) for row in heatmap.cells],
        "zmin": -heatmap.limit,
        "zmax": heatmap.limit,
        "colorscale": "@diverging",
        "hoverongaps": False,
        "hovertemplate": "%{customdata}<br>10<sup>%{z:.2f}</sup>",
        "colorbar": colour_scale(heatmap),
    }
    names = {key: [plain(name) for name in axis.names] for key, axis in (("x", heatmap.x), ("y", heatmap.y))}
    return {"data": [trace], "layout": layout, "names": names}
