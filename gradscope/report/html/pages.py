"""Any other document in the same frame: comparisons, sweeps, experiments, as a heading, facts, panels and notes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gradscope.record import write_atomically
from gradscope.report.html.document import render
from gradscope.report.html.panel import Panel, Table
from gradscope.report.html.sharing import shared
from gradscope.report.html.views.verdict import Fact


@dataclass(frozen=True)
class Page:
    """A document that is not the report of one model.

    Attributes:
        kind: What it is, above the heading: "Comparison", "Sweep", "Experiment".
        heading: Its subject, in a few words.
        lead: The one sentence to take away.
        style: good, warn, bad, unsure or info: the colour and the shape of its head.
        facts: Headline numbers.
        panels: Its sections.
        notes: Setting and limits, one sentence each.
        provenance: Where the numbers come from: (what, value).
    """

    kind: str
    heading: str
    lead: str
    panels: Sequence[Panel]
    style: str = "info"
    facts: Sequence[Fact] = field(default=())
    notes: Sequence[str] = field(default=())
    provenance: Sequence[tuple[str, str]] = field(default=())


def html_page(page: Page) -> str:
    """Return a page as one self-contained HTML document; the same page gives the same document."""
    page = _shareable(page)
    context = {"title": f"{page.kind}: {page.heading} (gradscope)", "document": page}
    return render("page.html.jinja", context, list(page.panels))


def _shareable(page: Page) -> Page:
    """Pass every text that a caller gave through `shared`; pictures are drawn from what already was."""
    return replace(
        page,
        heading=shared(page.heading),
        lead=shared(page.lead),
        panels=[_shareable_panel(panel) for panel in page.panels],
        notes=[shared(note) for note in page.notes],
        provenance=[(shared(name), shared(value)) for name, value in page.provenance],
    )


def _shareable_panel(panel: Panel) -> Panel:
    parts = tuple(_shareable_table(part) if isinstance(part, Table) else part for part in panel.parts)
    texts = {name: shared(getattr(panel, name)) for name in ("title", "short", "lead", "missing", "reading")}
    return replace(panel, parts=parts, **texts)


def _shareable_table(table: Table) -> Table:
    columns = tuple(replace(column, name=shared(column.name)) for column in table.columns)
    rows = [[shared(cell) if isinstance(cell, str) else cell for cell in row] for row in table.rows]
    return Table(shared(table.caption), columns, rows)


def write_page(page: Page, path: str | os.PathLike[str]) -> None:
    """Write a page, in full or not at all.

    Raises:
        RecordError: The file cannot be written.
    """
    write_atomically(Path(path), html_page(page).encode())
