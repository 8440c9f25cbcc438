"""The few signs the terminal views draw with, and their ASCII twins for streams that cannot carry them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Glyphs:
    """One set of drawing signs; `eighths` are bars of one to eight eighths of a cell."""

    ellipsis: str
    dot: str
    arrow: str
    culprit: str
    rule: str
    tick: str
    minus: str
    missing: str
    good: str
    warning: str
    bad: str
    unknown: str
    info: str
    eighths: str
    mark: str


UNICODE = Glyphs(
    ellipsis="…", dot="·", arrow="→", culprit="◀", rule="─", tick="┴", minus="−", missing="–",
    good="✓", warning="▲", bad="✗", unknown="?", info="•", eighths="▏▎▍▌▋▊▉█", mark="┃",
)  # fmt: skip

ASCII = Glyphs(
    ellipsis="~", dot="-", arrow="->", culprit="<", rule="-", tick="+", minus="-", missing="-",
    good="+", warning="!", bad="x", unknown="?", info="*", eighths="#", mark="|",
)  # fmt: skip


def glyphs_for(encoding: str) -> Glyphs:
    """Choose the signs a stream of this encoding can carry."""
    try:
        "".join(vars(UNICODE).values()).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE
