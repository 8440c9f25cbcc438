"""Draw a heatmap as one small image, whatever the number of cells: an SVG frame around an inline PNG."""

from __future__ import annotations

import base64
import math
import struct
import zlib

from markupsafe import Markup

from gradscope.report.html.chart import Heatmap, Number
from gradscope.report.html.scale import SUPERSCRIPTS, ticks
from gradscope.report.html.sharing import shorten

WIDTH = 900
LEFT, RIGHT, TOP, BOTTOM = 150, 96, 16, 52

DIVERGING = (
    (5, 48, 97),
    (67, 147, 195),
    (209, 229, 240),
    (244, 244, 240),
    (253, 219, 150),
    (224, 130, 20),
    (127, 59, 8),
)
"""Blue (smaller) over near-white (the same) to brown (larger): ColorBrewer's PuOr and RdBu ends, which colour-blind
readers tell apart; lightness falls to both ends, so it also survives a black-and-white printer."""
UNKNOWN = (150, 150, 150)
SHADES = 254


def colour(share: float) -> tuple[int, int, int]:
    """Return the colour at a share of the scale, 0 (smallest) to 1 (largest)."""
    place = min(max(share, 0.0), 1.0) * (len(DIVERGING) - 1)
    lower = min(int(place), len(DIVERGING) - 2)
    rest = place - lower
    first, second = DIVERGING[lower], DIVERGING[lower + 1]
    red, green, blue = (round(a + (b - a) * rest) for a, b in zip(first, second, strict=True))
    return red, green, blue


def draw(heatmap: Heatmap) -> Markup:
    """Draw the heatmap with its axes and colour scale."""
    right, bottom = WIDTH - RIGHT, heatmap.height - BOTTOM
    rows, columns = len(heatmap.cells), len(heatmap.cells[0])
    image = base64.b64encode(png([list(row) for row in reversed(heatmap.cells)], heatmap.limit)).decode()
    parts = [
        Markup(
            '<image x="{}" y="{}" width="{}" height="{}" preserveAspectRatio="none" class="cells" '
            'href="data:image/png;base64,{}"/>'
        ).format(LEFT, TOP, right - LEFT, bottom - TOP, image)
    ]
    for place in places(rows):
        y = bottom - (place + 0.5) / rows * (bottom - TOP)
        parts.append(_text(LEFT - 8, y + 4, shorten(heatmap.y.names[place], 20), "tick", "end"))
    for place in places(columns):
        x = LEFT + (place + 0.5) / columns * (right - LEFT)
        parts.append(_text(x, bottom + 19, shorten(heatmap.x.names[place], 16), "tick", "middle"))
    parts.append(_text((LEFT + right) / 2, heatmap.height - 10, heatmap.x.title, "label", "middle"))
    parts.append(_scale(heatmap, right + 22, bottom))
    return Markup('<svg class="drawing" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, heatmap.height, f"{heatmap.title}. {heatmap.summary}", Markup("").join(parts)
    )


def _scale(heatmap: Heatmap, x: float, bottom: float) -> Markup:
    strip = base64.b64encode(png([[heatmap.limit * (1 - row / 32)] for row in range(65)], heatmap.limit)).decode()
    parts = [
        Markup(
            '<image x="{}" y="{}" width="12" height="{}" preserveAspectRatio="none" href="data:image/png;base64,{}"/>'
        ).format(x, TOP, bottom - TOP, strip)
    ]
    for value in ticks(-heatmap.limit, heatmap.limit, 6, whole=True):
        y = bottom - (value + heatmap.limit) / (2 * heatmap.limit) * (bottom - TOP)
        words = "1" if value == 0 else "10" + str(int(value)).translate(SUPERSCRIPTS)
        parts.append(_text(x + 17, y + 4, words, "tick", "start"))
    return Markup("").join(parts)


def _text(x: float, y: float, words: str, kind: str, anchor: str) -> Markup:
    return Markup('<text x="{:.0f}" y="{:.0f}" class="{}" text-anchor="{}">{}</text>').format(x, y, kind, anchor, words)


def places(count: int) -> list[int]:
    """Choose which of many rows or columns are named: both ends and a few round ones between them."""
    last = count - 1
    return sorted(
        {0, last, *(int(value) for value in ticks(0, last, 4, whole=True) if last * 0.15 < value < last * 0.85)}
    )


def png(cells: list[list[Number]], limit: float) -> bytes:
    """Write cells as a palette PNG, one pixel a cell; the first row is the top one."""
    palette = b"".join(bytes(colour(shade / (SHADES - 1))) for shade in range(SHADES)) + bytes(UNKNOWN)
    lines = b"".join(b"\0" + bytes(_shade(value, limit) for value in row) for row in cells)
    header = struct.pack(">IIBBBBB", len(cells[0]), len(cells), 8, 3, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(kind, data)
        for kind, data in ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    )


def _shade(value: Number, limit: float) -> int:
    if value is None or math.isnan(value):
        return SHADES
    return round(min(max((value / limit + 1) / 2, 0.0), 1.0) * (SHADES - 1))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
