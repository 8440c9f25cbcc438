"""The residual stream as textbooks draw it: a line from input to loss, with branches that leave it and are added back.

Line widths are shares of the gradient: a thick stream and a thin branch mean that the gradient takes the skip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from gradscope.metrics.residual import Site
from gradscope.report.html.sharing import shorten
from gradscope.report.html.wording import MINUS, count, number, percent

WIDTH, HEIGHT = 900, 232
STREAM_Y, BOX_Y, BOX_HEIGHT, WIRE_Y, NORM_Y = 152, 12, 64, 44, 112
UNIT, GAP, START_X, BOX_WIDTH = 204, 56, 52.0, 126
MAX_UNITS = 4
THIN, THICK = 1.5, 11.0
"""Line widths in pixels for a share of 0 and of 1."""
NAME_CHARACTERS, BRANCH_CHARACTERS = 26, 13


def chosen_sites(sites: Sequence[object], culprits: Sequence[int]) -> list[int]:
    """Choose which additions to draw: the first, the last, the culprits, and a middle one where there is room.

    Example:
        >>> len(chosen_sites([None] * 100, [7]))
        4
    """
    last = len(sites) - 1
    wanted = [0, last, *culprits, last // 2, 1]
    chosen: list[int] = []
    for place in wanted:
        if 0 <= place <= last and place not in chosen and len(chosen) < MAX_UNITS:
            chosen.append(place)
    return sorted(chosen)


@dataclass(frozen=True)
class Drawn:
    """One addition to draw: its numbers, its name, what its branch is, and whether a finding blames it."""

    site: Site
    name: str
    branch: str
    bad: bool


def draw(additions: Sequence[Drawn]) -> Markup:
    """Draw a few of the additions along the stream, with "... n more ..." between them."""
    places = chosen_sites(additions, [place for place, addition in enumerate(additions) if addition.bad])
    parts: list[Markup] = [_text(10, STREAM_Y - 18, "input", "strong"), _stream(10, START_X, 0.5)]
    x = START_X
    before = -1
    for place in places:
        hidden = place - before - 1
        if hidden:
            parts.append(_gap(x, hidden))
            x += GAP
        parts.append(_unit(x, additions[place]))
        x += UNIT
        before = place
    right = x + 40
    arrow = '<path class="stream" stroke-width="3" d="M{} {}H{}m-9 -6l9 6l-9 6"/>'
    parts.append(Markup(arrow).format(x, STREAM_Y, right))
    parts.append(_text(right, STREAM_Y - 18, "loss", "strong", "end"))
    words = f"Stream diagram of {count(len(places), 'residual addition')} of {len(additions)}. " + " ".join(
        _sentence(additions[place]) for place in places
    )
    return Markup('<svg class="drawing" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        round(max(right + 10, WIDTH)), HEIGHT, words, Markup("").join(parts)
    )


def _sentence(addition: Drawn) -> str:
    return (
        f"{shorten(addition.name, 60)}: the branch adds {number(addition.site.forward_ratio)} times the stream; "
        f"{percent(addition.site.branch_energy_share)} of the gradient takes the branch."
    )


def _unit(x: float, addition: Drawn) -> Markup:
    """Draw one addition, `UNIT` wide: the branch up and over, the skip straight on, norms where they stand."""
    site = addition.site
    share = site.branch_energy_share
    branch = 0.5 if share is None else share
    post = site.placement == "post"
    leave, join = x + 24, x + UNIT - (74 if post else 30)
    width = _width(branch)
    middle = (leave + join) / 2
    wires = f"M{leave} {STREAM_Y}V{WIRE_Y}H{join}V{STREAM_Y - 12}"
    plus = '<circle class="flow-plus" cx="{}" cy="{}" r="11"/><path class="flow-plus" d="M{} {}h12m-6 -6v12"/>'
    parts = [
        _stream(x, join - 11, 1 - branch),
        _stream(join + 11, x + UNIT, 1 - branch),
        Markup('<path class="branch-path" stroke-width="{}" d="{}"/>').format(width, wires),
        _box(middle, addition, share),
        Markup(plus).format(join, STREAM_Y, join - 6, STREAM_Y),
        _text(middle, STREAM_Y - 12, _skip_words(site), "note small", "middle"),
        _text(
            middle, STREAM_Y + 20, "" if share is None else f"{percent(1 - share)} of gradient", "note small", "middle"
        ),
        _text(
            middle,
            STREAM_Y + 42,
            shorten(addition.name, NAME_CHARACTERS),
            "mark-label bad" if addition.bad else "strong",
            "middle",
        ),
        _text(middle, STREAM_Y + 59, _cosine_words(site.cosine), "note small", "middle"),
    ]
    if site.placement in ("pre", "sandwich"):
        parts.append(_norm(leave, NORM_Y))
    if site.placement == "sandwich":
        parts.append(_norm(join, NORM_Y))
    if post:
        parts.append(_norm(join + 42, STREAM_Y))
    return Markup("").join(parts)


def _box(middle: float, addition: Drawn, share: float | None) -> Markup:
    """Draw the branch's box: what it is, what it adds, what it carries back."""
    rect = '<rect class="flow-box{}" x="{}" y="{}" width="{}" height="{}" rx="6"/>'
    parts = [
        Markup(rect).format(" bad" if addition.bad else "", middle - BOX_WIDTH / 2, BOX_Y, BOX_WIDTH, BOX_HEIGHT),
        _text(middle, BOX_Y + 20, shorten(addition.branch, BRANCH_CHARACTERS), "strong", "middle"),
        _text(middle, BOX_Y + 38, _ratio_words(addition.site), "note small", "middle"),
    ]
    if share is not None:
        parts.append(_text(middle, BOX_Y + 54, f"{percent(share)} of gradient", "note small", "middle"))
    return Markup("").join(parts)


def _norm(x: float, y: float) -> Markup:
    """Draw a norm where it stands: small, on the path that it normalises."""
    return Markup('<rect class="flow-norm" x="{}" y="{}" width="40" height="18" rx="4"/>{}').format(
        x - 20, y - 9, _text(x, y + 4, "norm", "note small", "middle")
    )


def _skip_words(site: Site) -> str:
    """Say what the skip is: plain, scaled, gated or a projection."""
    if site.skip_scale not in (None, 1.0):
        return f"skip × {number(site.skip_scale)}"
    return {"projection": "projection", "gated": "gated skip"}.get(site.kind, "skip")


def _ratio_words(site: Site) -> str:
    return "size unknown" if site.forward_ratio is None else f"adds {number(site.forward_ratio, 2)} × stream"


def _cosine_words(cosine: float | None) -> str:
    return "" if cosine is None else f"cosine {round(cosine, 2) + 0.0:.2f}".replace("-", MINUS)


def _stream(start: float, end: float, share: float) -> Markup:
    return Markup('<path class="stream" stroke-width="{}" d="M{} {}H{}"/>').format(_width(share), start, STREAM_Y, end)


def _gap(x: float, hidden: int) -> Markup:
    line = Markup('<path class="stream cut" stroke-width="3" d="M{} {}H{}"/>').format(x + 4, STREAM_Y, x + GAP - 4)
    return line + _text(x + GAP / 2, STREAM_Y - 14, f"{hidden} more", "note small", "middle")


def _width(share: float) -> float:
    return round(THIN + (THICK - THIN) * min(max(share, 0.0), 1.0), 1)


def _text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> Markup:
    return Markup('<text x="{:.0f}" y="{:.0f}" class="{}" text-anchor="{}">{}</text>').format(x, y, kind, anchor, words)
