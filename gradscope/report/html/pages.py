"""Any other document in the same frame: comparisons, sweeps, experiments, as a heading, facts, panels and notes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gradscope.record import write_atomically
from gradscope.report.html.document import render
from gradscope.report.html.panel import Panel
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
    context = {"title": shared(f"{page.kind}: {page.heading} (gradscope)"), "document": page}
    return render("page.html.jinja", context, list(page.panels))


def write_page(page: Page, path: str | os.PathLike[str]) -> None:
    """Write a page, in full or not at all.

    Raises:
        RecordError: The file cannot be written.
    """
    write_atomically(Path(path), html_page(page).encode())
