"""What a chart shows, free of how it is drawn: `svg` draws it without scripts, `plot` hands it to plotly.

Coordinates are plain numbers. A logarithmic axis gets the log10 of its values, so nothing here takes a logarithm.
A colour is a role ("main", "law", "bad", ...), which the style sheet turns into a colour for light and dark pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Number = float | None
DOTS_UP_TO = 60
"""Points on a line that are still marked one by one; dots of more would merge."""

Role = Literal["main", "law", "bad", "good", "faint", "skip", "branch", "other", "third"]


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes:
        title: What it counts, with its unit.
        log: The numbers are log10 of the quantity; ticks are written as powers of ten.
        names: What stands at 0, 1, 2, ... (layers, stations); shown at a few ticks and on hover.
        low: Where the axis starts; None lets the data say.
        high: Where it ends.
    """

    title: str
    log: bool = False
    names: tuple[str, ...] = ()
    low: Number = None
    high: Number = None


@dataclass(frozen=True)
class Series:
    """A line, with an optional band around it.

    Attributes:
        name: Its entry in the legend.
        x: Positions.
        y: Heights; None leaves a gap.
        role: Its colour.
        low: Lower edge of the band, as long as `y`.
        high: Upper edge of the band.
        band_name: What the band is, in the legend.
        dash: Whether the line is dashed (an expectation, not a measurement).
        dots: Whether each point is marked.
        joined: Whether a line joins the points.
        area: Whether the surface down to the series before it is filled (stacked shares).
    """

    name: str
    x: Sequence[float]
    y: Sequence[Number]
    role: Role = "main"
    low: Sequence[Number] = ()
    high: Sequence[Number] = ()
    band_name: str = ""
    dash: bool = False
    dots: bool = False
    joined: bool = True
    area: bool = False


@dataclass(frozen=True)
class Bars:
    """A histogram: one bar a bin, all `width` wide, standing at the bin's left edge."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    width: float = 1.0
    role: Role = "main"


@dataclass(frozen=True)
class Mark:
    """A place to look at: a ring with a label (over it or `below`) and, where there is one, a link to the finding."""

    x: float
    y: float
    label: str
    role: Role = "bad"
    href: str = ""
    below: bool = False


@dataclass(frozen=True)
class Zone:
    """A shaded stretch of the x axis (a number format's range) or a line across at one height (a limit)."""

    axis: Literal["x", "y"]
    start: float
    end: float
    label: str
    role: Role = "faint"


@dataclass(frozen=True)
class Chart:
    """Lines or bars over one pair of axes.

    Attributes:
        id: Fixed id of its place in the page.
        title: What it shows, for the text alternative.
        summary: What a reader sees in it, in words: the text alternative of the picture.
        x: Horizontal axis.
        y: Vertical axis.
        layers: What is drawn, first to last.
        marks: Places to look at.
        zones: Shaded stretches, drawn beneath.
        height: In pixels.
    """

    id: str
    title: str
    summary: str
    x: Axis
    y: Axis
    layers: tuple[Series | Bars, ...]
    marks: tuple[Mark, ...] = ()
    zones: tuple[Zone, ...] = ()
    height: int = 340


@dataclass(frozen=True)
class Heatmap:
    """One coloured cell for each (row, column).

    Attributes:
        id: Fixed id of its place in the page.
        title: What it shows.
        summary: Its text alternative.
        x: Horizontal axis, with a name for each column.
        y: Vertical axis, with a name for each row; row 0 is at the bottom.
        cells: `cells[row][column]`; None where nothing was measured.
        unit: What a cell is.
        limit: The scale runs from -limit to +limit.
        height: In pixels.
    """

    id: str
    title: str
    summary: str
    x: Axis
    y: Axis
    cells: Sequence[Sequence[Number]]
    unit: str
    limit: float
    height: int = 380


Figure = Chart | Heatmap
