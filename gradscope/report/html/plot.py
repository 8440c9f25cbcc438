"""Hand a chart to plotly: a plain dict of traces and layout, a handful of traces however deep the model is.

Plotly reads a small markup in its texts, so every string is escaped for it here. Colours are written as roles
("@main"); the page's script and `notebook.figure` replace them by the colours of the theme.
"""

from __future__ import annotations

from typing import Any

from gradscope.report.html import raster
from gradscope.report.html.chart import Axis, Bars, Chart, Figure, Heatmap, Number, Series
from gradscope.report.html.scale import ends, tick_text, ticks
from gradscope.report.html.sharing import shorten
from gradscope.report.html.svg import x_ticks, y_ticks

CONFIG = {
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
}
DIGITS = 5
HOVER_CHARACTERS = 60


def spec(figure: Figure) -> dict[str, Any]:
    """Describe a chart as plotly's `{"data": [...], "layout": {...}}`."""
    return _heatmap(figure) if isinstance(figure, Heatmap) else _chart(figure)


def plain(text: str) -> str:
    """Escape a text for plotly, which would read `<b>`, `<a href=...>` and entities in it."""
    return shorten(text, HOVER_CHARACTERS).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def rounded(values: Any) -> list[Number]:
    """Keep the digits a screen can show."""
    return [None if value is None or value - value != 0 else float(f"{value:.{DIGITS}g}") for value in values]


def _chart(chart: Chart) -> dict[str, Any]:
    traces: list[dict[str, Any]] = []
    for layer in chart.layers:
        traces += [_bars(layer)] if isinstance(layer, Bars) else _series(layer, chart)
    if chart.marks:
        traces.append(_marks(chart))
    layout = _layout(chart)
    layout["shapes"], notes = _zones(chart)
    layout["annotations"] = notes
    return {"data": traces, "layout": layout}


def _hover(chart: Chart) -> str:
    value = "10<sup>%{y:.2f}</sup>" if chart.y.log else "%{y:.4g}"
    return ("%{text}: " if chart.x.names else "%{x}: ") + value


def _names(series: Series, chart: Chart) -> list[str]:
    names = chart.x.names
    return [plain(names[int(x)]) if 0 <= x < len(names) else "" for x in series.x] if names else []


def _series(series: Series, chart: Chart) -> list[dict[str, Any]]:
    traces: list[dict[str, Any]] = []
    colour = f"@{series.role}"
    if series.low and series.high:
        edge = {"type": "scatter", "mode": "lines", "x": list(series.x), "line": {"width": 0}, "hoverinfo": "skip"}
        traces.append({**edge, "y": rounded(series.low), "showlegend": False})
        traces.append(
            {
                **edge,
                "y": rounded(series.high),
                "fill": "tonexty",
                "fillcolor": f"{colour}/0.2",
                "name": plain(series.band_name),
            }
        )
    line: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines" * series.joined + "+" * (series.joined and series.dots) + "markers" * series.dots,
        "name": plain(series.name),
        "x": list(series.x),
        "y": rounded(series.y),
        "hovertemplate": _hover(chart),
        "line": {"color": colour, "width": 2.2, "dash": "dash" if series.dash else "solid"},
    }
    if series.dots:
        line["marker"] = {"color": colour, "size": 5}
    if names := _names(series, chart):
        line["text"] = names
    if series.area:
        line |= {"fill": "tozeroy" if not _stands_on(series, chart) else "tonexty", "fillcolor": f"{colour}/0.45"}
    return [*traces, line]


def _stands_on(series: Series, chart: Chart) -> bool:
    areas = [layer for layer in chart.layers if isinstance(layer, Series) and layer.area]
    return areas.index(series) > 0


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
    return {
        "type": "scatter",
        "mode": "markers+text",
        "showlegend": False,
        "x": [mark.x for mark in chart.marks],
        "y": rounded([mark.y for mark in chart.marks]),
        "text": [plain(mark.label) for mark in chart.marks],
        "textposition": [
            f"{'bottom' if mark.below else 'top'} {'right' if mark.x < _middle(chart) else 'left'}"
            for mark in chart.marks
        ],
        "marker": {"size": 14, "color": "rgba(0,0,0,0)", "line": {"width": 3, "color": "@bad"}},
        "textfont": {"color": "@bad", "size": 13},
        "hovertemplate": "%{text}",
        "cliponaxis": False,
    }


def _middle(chart: Chart) -> float:
    low, high, _, _ = ends(chart)
    return (low + high) / 2


def _layout(chart: Chart) -> dict[str, Any]:
    x_low, x_high, y_low, y_high = ends(chart)
    layout = _frame(chart.x, chart.y, chart.height)
    layout["xaxis"]["range"] = [x_low, x_high]
    layout["yaxis"]["range"] = rounded([y_low, y_high])
    if chart.x.names:
        chosen = x_ticks(chart, x_low, x_high)
        layout["xaxis"] |= {
            "tickvals": [place for place, _, _ in chosen],
            "ticktext": [plain(shorten(name, 18)) for _, name, _ in chosen],
            "tickangle": 0,
        }
    values = y_ticks(chart, y_low, y_high)
    layout["yaxis"] |= {"tickvals": values, "ticktext": [tick_text(value, chart.y) for value in values]}
    if any(isinstance(layer, Bars) for layer in chart.layers):
        layout["bargap"] = 0
    return layout


def _frame(x: Axis, y: Axis, height: int) -> dict[str, Any]:
    return {
        "height": height,
        "showlegend": False,
        "margin": {"l": 76, "r": 46 if x.names else 24, "t": 30, "b": 52},
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
        "yaxis": {
            "title": {"text": plain(y.title), "standoff": 4},
            "gridcolor": "@grid",
            "zeroline": False,
            "tickcolor": "@grid",
        },
    }


def _zones(chart: Chart) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    shapes: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    x_low, x_high, _, _ = ends(chart)
    ranges = [zone for zone in chart.zones if zone.axis == "x"]
    for zone in chart.zones:
        note = {
            "showarrow": False,
            "text": plain(zone.label),
            "font": {"size": 11, "color": "@soft"},
            "xanchor": "right",
        }
        if zone.axis == "y":
            shapes.append(
                {
                    "type": "line" if zone.start == zone.end else "rect",
                    "xref": "paper",
                    "x0": 0,
                    "x1": 1,
                    "y0": zone.start,
                    "y1": zone.end,
                    "line": {"color": f"@{zone.role}", "dash": "dot", "width": 1.5 if zone.start == zone.end else 0},
                    "fillcolor": f"@{zone.role}/0.1",
                    "layer": "below",
                }
            )
            notes.append({**note, "xref": "paper", "x": 1, "y": zone.end, "yanchor": "bottom"})
            continue
        height = 0.055 * (len(ranges) - ranges.index(zone))
        left, right = max(zone.start, x_low), min(zone.end, x_high)
        shapes.append(
            {
                "type": "line",
                "yref": "paper",
                "x0": left,
                "x1": right,
                "y0": height,
                "y1": height,
                "line": {"color": f"@{zone.role}", "width": 3},
                "layer": "above",
            }
        )
        notes.append({**note, "yref": "paper", "x": right, "y": height, "yanchor": "bottom"})
    return shapes, notes


def _scale(heatmap: Heatmap) -> dict[str, Any]:
    values = ticks(-heatmap.limit, heatmap.limit, 6, whole=True)
    words = [tick_text(value, Axis("", log=True)) for value in values]
    return {"title": {"text": plain(heatmap.unit)}, "thickness": 14, "tickvals": values, "ticktext": words}


def _heatmap(heatmap: Heatmap) -> dict[str, Any]:
    layout = _frame(heatmap.x, heatmap.y, heatmap.height)
    for key, axis in (("xaxis", heatmap.x), ("yaxis", heatmap.y)):
        last = len(axis.names) - 1
        places = raster.places(last + 1)
        layout[key] |= {
            "tickvals": places,
            "ticktext": [plain(shorten(axis.names[place], 18)) for place in places],
            "tickangle": 0,
            "range": [-0.5, last + 0.5],
        }
    trace = {
        "type": "heatmap",
        "z": [rounded(row) for row in heatmap.cells],
        "zmin": -heatmap.limit,
        "zmax": heatmap.limit,
        "colorscale": "@diverging",
        "hoverongaps": False,
        "hovertemplate": "%{customdata}<br>10<sup>%{z:.2f}</sup>",
        "colorbar": _scale(heatmap),
    }
    return {
        "data": [trace],
        "layout": layout,
        "names": {"x": [plain(name) for name in heatmap.x.names], "y": [plain(name) for name in heatmap.y.names]},
    }
