"""The page of a sweep: how a number depends on depth (or another argument), the fitted law, and where it will break."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from gradscope.report.html.chart import Axis, Chart, Number, Series, Zone
from gradscope.report.html.pages import Page, html_page, write_page
from gradscope.report.html.panel import Column, Panel, Table, picture
from gradscope.report.html.sharing import shared
from gradscope.report.html.views.verdict import VERDICTS
from gradscope.report.html.wording import count


@dataclass(frozen=True)
class SweepPoint:
    """One network of the sweep: where it stands, what was measured (None where nothing was), how it was judged."""

    place: float
    value: Number
    verdict: str
    label: str = ""


@dataclass(frozen=True)
class Curve:
    """A fitted law, drawn: its name, and its value with an interval at several places, beyond the data too."""

    name: str
    places: Sequence[float]
    middle: Sequence[Number]
    low: Sequence[Number] = ()
    high: Sequence[Number] = ()


@dataclass(frozen=True)
class Sweep:
    """A sweep.

    Attributes:
        heading: What was varied, of what.
        lead: The sentence to take away: the law, and where it breaks.
        argument: The axis: the name of the argument.
        measure: The other axis, with its unit (decades).
        points: The networks.
        curves: The fitted law first, then those the data do not rule out.
        limits: Levels at which a verdict changes: (value, words).
        tables: More numbers.
        notes: Setting and limits of the fit, one sentence each.
        provenance: Where the numbers come from.
    """

    heading: str
    lead: str
    argument: str
    measure: str
    points: Sequence[SweepPoint]
    curves: Sequence[Curve] = ()
    limits: Sequence[tuple[float, str]] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = field(default=())
    provenance: Sequence[tuple[str, str]] = field(default=())


def write_sweep(sweep: Sweep, path: str | os.PathLike[str]) -> None:
    """Write the page of a sweep.

    Raises:
        RecordError: The file cannot be written.
    """
    write_page(sweep_page(sweep), path)


def html_sweep(sweep: Sweep) -> str:
    """Return the page of a sweep as one HTML document."""
    return html_page(sweep_page(sweep))


def sweep_page(sweep: Sweep) -> Page:
    """Build the page of a sweep."""
    law = Panel("law", "The law", "Law", parts=(picture(sweep_chart(sweep)),))
    if not any(point.value is not None for point in sweep.points):
        law = Panel("law", "The law", "Law", missing="None of the networks gave a number, so there is nothing to draw.")
    columns = (Column(sweep.argument, "number"), Column("network"), Column(sweep.measure, "number"), Column("verdict"))
    rows = [(p.place, shared(p.label), p.value, VERDICTS[p.verdict][0]) for p in sweep.points]
    table = Panel(
        "networks", "The networks", "Networks", parts=(Table("What was measured", columns, rows), *sweep.tables)
    )
    return Page(
        "Sweep", shared(sweep.heading), sweep.lead, (law, table), notes=sweep.notes, provenance=sweep.provenance
    )


def sweep_chart(sweep: Sweep) -> Chart:
    """Draw every network as a dot, the law as a line with its interval, the rivals dashed, and the limits across."""
    layers = [_curve(curve, best=place == 0) for place, curve in enumerate(sweep.curves)]
    places = [point.place for point in sweep.points]
    values = [point.value for point in sweep.points]
    layers.append(Series("measured", places, values, "main", dots=True, joined=False))
    return Chart(
        "chart-sweep",
        f"{sweep.measure} against {sweep.argument}",
        f"{count(len(sweep.points), 'network')}. {sweep.lead}",
        Axis(sweep.argument),
        Axis(sweep.measure),
        tuple(layers),
        zones=tuple(Zone("y", value, value, words, "bad") for value, words in sweep.limits),
    )


def _curve(curve: Curve, *, best: bool) -> Series:
    if not best:
        return Series(curve.name, curve.places, curve.middle, "law", dash=True)
    band = "95 % for one network"
    return Series(curve.name, curve.places, curve.middle, "branch", curve.low, curve.high, band_name=band)
