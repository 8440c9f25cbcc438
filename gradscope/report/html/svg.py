"""Draw a chart as inline SVG: what the page shows without scripts, in print and in a notebook.

Colours are style-sheet classes, so one drawing serves light and dark; every text is escaped here, once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from markupsafe import Markup

from gradscope.report.html.chart import Bars, Chart, Mark, Number, Series, Zone
from gradscope.report.html.scale import ends, log_ticks, tick_text, ticks
from gradscope.report.html.sharing import shorten

WIDTH = 900
LEFT, RIGHT, TOP, BOTTOM = 68, 24, 16, 52
MAX_POINTS = 300
"""More points than this on a line cannot be told apart at this width; the rest are thinned (extremes are kept)."""
LABEL_CHARACTERS = 28


class Frame:
    """The mapping from numbers to places on the drawing."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.x_low, self.x_high, self.y_low, self.y_high = ends(chart)
        self.right = WIDTH - RIGHT
        self.bottom = chart.height - BOTTOM

    def x(self, value: float) -> float:
        """Return the horizontal place of a number."""
        return round(LEFT + (value - self.x_low) / (self.x_high - self.x_low) * (self.right - LEFT), 1)

    def y(self, value: float) -> float:
        """Return the vertical place of a number, kept inside the frame."""
        place = self.bottom - (value - self.y_low) / (self.y_high - self.y_low) * (self.bottom - TOP)
        return round(min(max(place, TOP - 4), self.bottom + 4), 1)


def draw(chart: Chart) -> Markup:
    """Draw a chart as one `<svg>` with its text alternative."""
    frame = Frame(chart)
    parts = [_zones(frame), _grid(frame)]
    parts += [
        _bars(frame, layer) if isinstance(layer, Bars) else _series(frame, layer, _floor(chart, layer))
        for layer in chart.layers
    ]
    parts += [_mark(frame, mark) for mark in chart.marks]
    return Markup('<svg class="drawing" viewBox="0 0 {w} {h}" role="img" aria-label="{label}">{body}</svg>').format(
        w=WIDTH, h=chart.height, label=f"{chart.title}. {chart.summary}", body=Markup("").join(parts)
    )


def _text(x: float, y: float, words: str, kind: str, anchor: str = "start", extra: str = "") -> Markup:
    return Markup('<text x="{}" y="{}" class="{}" text-anchor="{}"{}>{}</text>').format(
        x, y, kind, anchor, Markup(extra), words
    )


def _grid(frame: Frame) -> Markup:
    chart = frame.chart
    parts = []
    for value in y_ticks(chart, frame.y_low, frame.y_high):
        y = frame.y(value)
        parts.append(Markup('<path class="grid" d="M{} {}H{}"/>').format(LEFT, y, frame.right))
        parts.append(_text(LEFT - 8, y + 4, tick_text(value, chart.y), "tick", "end"))
    for value, words, anchor in x_ticks(chart, frame.x_low, frame.x_high):
        x = frame.x(value)
        parts.append(Markup('<path class="axis" d="M{} {}v5"/>').format(x, frame.bottom))
        parts.append(_text(x, frame.bottom + 19, words, "tick", anchor))
    parts.append(Markup('<path class="axis" d="M{} {}H{}"/>').format(LEFT, frame.bottom, frame.right))
    parts.append(_text((LEFT + frame.right) / 2, chart.height - 10, chart.x.title, "label", "middle"))
    middle = (TOP + frame.bottom) / 2
    turned = f' transform="rotate(-90 14 {middle:.0f})"'
    parts.append(_text(14, round(middle), chart.y.title, "label", "middle", turned))
    return Markup("").join(parts)


def y_ticks(chart: Chart, low: float, high: float) -> list[float]:
    """Choose the ticks of the y axis; below the foot of bars there is room for ranges, but nothing to count."""
    if chart.y.log:
        return log_ticks(low, high)
    has_bars = any(isinstance(layer, Bars) for layer in chart.layers)
    return [value for value in ticks(low, high, 6) if value >= 0 or not has_bars]


def x_ticks(chart: Chart, low: float, high: float) -> list[tuple[float, str, str]]:
    """Choose the ticks of the x axis: (place, text, text anchor); named places show a few of their names."""
    names = chart.x.names
    if not names:
        return [(value, tick_text(value, chart.x), "middle") for value in ticks(low, high, 8, whole=chart.x.log)]
    last = len(names) - 1
    inner = [int(value) for value in ticks(0, last, 3, whole=True) if last * 0.15 < value < last * 0.8]
    places = sorted({0, last, *inner})
    anchors = {0: "start", last: "end"}
    return [(place, shorten(names[place], LABEL_CHARACTERS), anchors.get(place, "middle")) for place in places]


def _zones(frame: Frame) -> Markup:
    parts = [_x_zone(frame, zone) if zone.axis == "x" else _y_zone(frame, zone) for zone in frame.chart.zones]
    return Markup("").join(parts)


def _x_zone(frame: Frame, zone: Zone) -> Markup:
    left, right = (frame.x(min(max(end, frame.x_low), frame.x_high)) for end in (zone.start, zone.end))
    rows = [other for other in frame.chart.zones if other.axis == "x"]
    y = frame.bottom - 14 * (len(rows) - rows.index(zone))
    return Markup('<path class="range {}" d="M{} {}v-9m0 5H{}m0 -5v9"/>{}').format(
        zone.role, left, y + 4, right, _text(min(right, frame.right - 4) - 4, y - 4, zone.label, "note", "end")
    )


def _y_zone(frame: Frame, zone: Zone) -> Markup:
    if zone.start == zone.end:
        y = frame.y(zone.start)
        return Markup('<path class="limit {}" d="M{} {}H{}"/>{}').format(
            zone.role, LEFT, y, frame.right, _text(LEFT + 6, y + 14, zone.label, "note")
        )
    top, bottom = frame.y(zone.end), frame.y(zone.start)
    return Markup('<rect class="zone {}" x="{}" y="{}" width="{}" height="{}"/>{}').format(
        zone.role,
        LEFT,
        top,
        frame.right - LEFT,
        round(bottom - top, 1),
        _text(LEFT + 6, top + 13, zone.label, "note"),
    )


def _bars(frame: Frame, bars: Bars) -> Markup:
    zero = frame.y(0.0)
    steps = []
    for x, y in zip(bars.x, bars.y, strict=True):
        left, right, top = frame.x(x), frame.x(x + bars.width), frame.y(y)
        steps.append(f"M{left} {zero}V{top}H{max(right - 1, left + 0.5)}V{zero}Z")
    return Markup('<path class="bar {}" d="{}"/>').format(bars.role, Markup("".join(steps)))


def _floor(chart: Chart, series: Series) -> Series | None:
    """Find the line an area stands on: the area drawn before it."""
    areas = [layer for layer in chart.layers if isinstance(layer, Series) and layer.area]
    place = areas.index(series) if series in areas else 0
    return areas[place - 1] if place else None


def _series(frame: Frame, series: Series, below: Series | None) -> Markup:
    parts = []
    if series.low and series.high:
        parts.append(_surface(frame, series.x, series.low, series.high, f"band {series.role}"))
    if series.area:
        low = below.y if below else [0.0] * len(series.x)
        parts.append(_surface(frame, series.x, low, series.y, f"area {series.role}"))
    kind = f"line {series.role}{' dash' if series.dash else ''}{' edge' if series.area else ''}"
    points = thinned(series.x, series.y)
    if series.joined:
        parts.append(Markup('<path class="{}" d="{}"/>').format(kind, Markup(_path(frame, points))))
    if series.dots:
        dots = "".join(f"M{frame.x(x)} {frame.y(y)}h0" for x, y in points if y is not None and math.isfinite(y))
        parts.append(Markup('<path class="dots {}" d="{}"/>').format(series.role, Markup(dots)))
    return Markup("").join(parts)


def _surface(frame: Frame, x: Sequence[float], low: Sequence[Number], high: Sequence[Number], kind: str) -> Markup:
    places = zip(x, low, high, strict=True)
    kept = [(a, b, c) for a, b, c in places if b is not None and c is not None and math.isfinite(b + c)]
    kept = kept[:: max(1, len(kept) // MAX_POINTS)]
    if not kept:
        return Markup("")
    upper = "L".join(f"{frame.x(a)} {frame.y(c)}" for a, _, c in kept)
    lower = "L".join(f"{frame.x(a)} {frame.y(b)}" for a, b, _ in reversed(kept))
    return Markup('<path class="{}" d="M{}L{}Z"/>').format(kind, Markup(upper), Markup(lower))


def thinned(x: Sequence[float], y: Sequence[Number]) -> list[tuple[float, Number]]:
    """Thin a long line: of each stretch keep the first, the lowest and the highest point, so that a spike stays."""
    points = list(zip(x, y, strict=True))
    stretch = 3 * len(points) // MAX_POINTS
    if len(points) <= MAX_POINTS or stretch < 3:  # noqa: PLR2004 - three points are kept of each stretch
        return points
    kept = []
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        known = [point for point in part if point[1] is not None]
        extremes = {min(known, key=_height), max(known, key=_height)} if known else set()
        kept += sorted({part[0], *extremes}, key=lambda point: point[0])
    return [*kept, points[-1]]


def _height(point: tuple[float, Number]) -> float:
    return point[1] or 0.0


def _path(frame: Frame, points: Sequence[tuple[float, Number]]) -> str:
    parts = []
    before: tuple[float, Number] = (0.0, None)
    for previous, (x, y) in pairwise([before, *points]):
        if y is not None and math.isfinite(y):
            parts.append(f"{'M' if previous[1] is None else 'L'}{frame.x(x)} {frame.y(y)}")
    return "".join(parts)


def _mark(frame: Frame, mark: Mark) -> Markup:
    x, y = frame.x(mark.x), frame.y(mark.y)
    left_half = x < (LEFT + frame.right) / 2
    above = y > TOP + 24 and not mark.below
    label = _text(
        x + (12 if left_half else -12),
        y + (-10 if above else 20),
        mark.label,
        f"mark-label {mark.role}",
        "start" if left_half else "end",
    )
    ring = Markup('<circle class="mark {}" cx="{}" cy="{}" r="7"/>').format(mark.role, x, y)
    if mark.href:
        return Markup('<a href="{}">{}{}</a>').format(mark.href, ring, label)
    return ring + label


def legend(chart: Chart) -> Markup:
    """List what the colours mean, as HTML beside the drawing: it wraps on a phone and serves the live chart as well."""
    items = [_key(kind, words) for layer in chart.layers for kind, words in _entries(layer) if words]
    if len(items) < 2:  # noqa: PLR2004 - a single line is named by the axis
        return Markup("")
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(items))


def _entries(layer: Series | Bars) -> list[tuple[str, str]]:
    if isinstance(layer, Bars) or layer.area:
        return [(f"swatch {layer.role}", layer.name)]
    shape = f"line {layer.role}{' dash' if layer.dash else ''}" if layer.joined else f"dots {layer.role}"
    line = (shape, layer.name)
    return [line, (f"swatch pale {layer.role}", layer.band_name)] if layer.low else [line]


def _key(kind: str, words: str) -> Markup:
    shape = "M12 6h0" if kind.startswith("dots") else "M1 6h22"
    key = Markup('<svg viewBox="0 0 24 12" aria-hidden="true"><path class="{}" d="{}"/></svg>').format(kind, shape)
    return Markup("<li>{} <bdi>{}</bdi></li>").format(key, shorten(words, 60))
