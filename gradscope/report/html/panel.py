"""The parts a page is made of, without their looks: panels of pictures and tables, each with its words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from gradscope.report.html import raster, svg
from gradscope.report.html.chart import Chart, Figure, Heatmap

Cell = str | float | int | None


@dataclass(frozen=True)
class Column:
    """A table column: its heading, its kind (text, prose, number, place or spark) and the glossary word it explains."""

    name: str
    kind: str = "text"
    term: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under columns; `caption` says what they are."""

    caption: str
    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Picture:
    """A drawing, what it shows in words, and the numbers behind it.

    Attributes:
        title: Its caption.
        summary: What a reader sees in it.
        drawing: Inline SVG.
        height: In pixels, fixed so that nothing moves when the live chart replaces the drawing.
        figure: The chart for plotly; None for a drawing that stays one.
        table: Its numbers, for those who cannot see it.
    """

    title: str
    summary: str
    drawing: Markup
    height: int
    figure: Figure | None = None
    table: Table | None = None

    @property
    def legend(self) -> Markup:
        """What its colours mean."""
        return svg.legend(self.figure) if isinstance(self.figure, Chart) else Markup("")

    @property
    def id(self) -> str:
        """The fixed id of its place; "" for a drawing that stays one."""
        return self.figure.id if self.figure else ""


@dataclass(frozen=True)
class Panel:
    """A section of the page.

    Attributes:
        id: Anchor.
        title: Heading.
        short: Its name in the navigation.
        lead: The one sentence to take away.
        parts: Pictures and tables, in order.
        missing: Why there is nothing to show, in one line; "" where there is.
        reading: How to read the pictures, for a newcomer.
    """

    id: str
    title: str
    short: str
    lead: str = ""
    parts: tuple[Picture | Table, ...] = field(default=())
    missing: str = ""
    reading: str = ""


def picture(figure: Figure, table: Table | None = None) -> Picture:
    """Draw a chart or heatmap."""
    drawing = raster.draw(figure) if isinstance(figure, Heatmap) else svg.draw(figure)
    return Picture(figure.title, figure.summary, drawing, figure.height, figure, table)
