"""ROC curves as one small SVG, without any library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

SIZE, MARGIN = 300, 44
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#555555")
"""Okabe and Ito's palette: told apart by colour-blind readers."""


def svg(
    title: str, curves: Mapping[str, Sequence[tuple[float, float]]], points: Mapping[str, tuple[float, float]]
) -> str:
    """Draw curves and single points, each (false positive rate, true positive rate)."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE + 250} {SIZE + 2 * MARGIN}" '
        f'font-family="sans-serif" font-size="11" role="img" aria-label="{escape(title)}">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{MARGIN}" y="18" font-size="13">{escape(title)}</text>',
        f'<rect x="{MARGIN}" y="{MARGIN}" width="{SIZE}" height="{SIZE}" fill="none" stroke="#999"/>',
        f'<path d="M{_x(0)} {_y(0)} L{_x(1)} {_y(1)}" stroke="#ddd"/>',
        f'<text x="{MARGIN}" y="{SIZE + MARGIN + 16}">0</text>',
        f'<text x="{SIZE + MARGIN - 6}" y="{SIZE + MARGIN + 16}">1</text>',
        f'<text x="{MARGIN + 80}" y="{SIZE + MARGIN + 30}">false alarms among those that train</text>',
        f'<text transform="translate(16 {SIZE + MARGIN - 60}) rotate(-90)">found among those that fail</text>',
    ]
    row = MARGIN + 10
    for number, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{'L' if i else 'M'}{_x(x):.1f} {_y(y):.1f}" for i, (x, y) in enumerate(curve))
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        parts.append(f'<text x="{SIZE + MARGIN + 14}" y="{row}" fill="{colour}">— {escape(name)}</text>')
        row += 16
    for name, (x, y) in points.items():
        ours = name.startswith("gradscope")
        size, colour = (5, "#000") if ours else (3.5, "#999")
        parts.append(f'<circle cx="{_x(x):.1f}" cy="{_y(y):.1f}" r="{size}" fill="{colour}"/>')
        parts.append(f'<text x="{_x(x) + 7:.1f}" y="{_y(y) + 4:.1f}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _x(rate: float) -> float:
    return MARGIN + SIZE * rate


def _y(rate: float) -> float:
    return MARGIN + SIZE * (1 - rate)
