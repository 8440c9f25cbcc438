"""The page of a trained experiment: what was measured, and what it says to the claims.

It takes the experiment's JSON object (`ExperimentResult.to_object()`), so that a saved one can be shown again and the
views know nothing of the experiments.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gradscope.report.html.pages import Page, html_page, write_page
from gradscope.report.html.panel import Cell, Column, Panel, Table
from gradscope.report.html.sharing import shared
from gradscope.report.html.wording import count, number

Result = Mapping[str, Any]
SIGNS = {"holds": "✓ holds", "does not hold": "✕ does not hold", "depends": "◐ depends"}
PLURALS = {"holds": "hold", "does not hold": "do not hold", "depends": "depend on the setting"}
SINGULARS = {"holds": "holds", "does not hold": "does not hold", "depends": "depends on the setting"}
NAVIGATION_WORDS = 3


def write_experiment(result: Result, path: str | os.PathLike[str], panels: Sequence[Panel] = ()) -> None:
    """Write the page of an experiment; `panels` are pictures to show before its tables.

    Raises:
        RecordError: The file cannot be written.
    """
    write_page(experiment_page(result, panels), path)


def html_experiment(result: Result, panels: Sequence[Panel] = ()) -> str:
    """Return the page of an experiment as one HTML document."""
    return html_page(experiment_page(result, panels))


def experiment_page(result: Result, panels: Sequence[Panel] = ()) -> Page:
    """Build the page of an experiment from its JSON object."""
    sections = [*_claims(result["claims"]), *panels, *_tables(result["tables"])]
    provenance = [(str(name), shared(str(value))) for name, value in result["provenance"].items()]
    provenance.append(("Took", f"{number(result['seconds'])} s"))
    return Page("Experiment", result["title"], _lead(result), sections, notes=result["notes"], provenance=provenance)


def experiments_page(results: Sequence[Result]) -> Page:
    """Build one page of several experiments: an overview, then the panels of each under its own title."""
    pages = [experiment_page(result) for result in results]
    panels = [_overview(results)]
    for result, page in zip(results, pages, strict=True):
        name = str(result["name"])
        panels += [
            # The navigation names each experiment once.
            replace(panel, id=f"{name}-{panel.id}", title=f"{page.heading}: {panel.title}", short="" if place else name)
            for place, panel in enumerate(page.panels)
        ]
    notes = [f"{result['name']}: {note}" for result, page in zip(results, pages, strict=True) for note in page.notes]
    seconds = sum(result["seconds"] for result in results)
    provenance = [*pages[0].provenance[:-1], ("Took", f"{number(seconds)} s")]
    claims = [claim for result in results for claim in result["claims"]]
    lead = _lead({"claims": claims, "quick": any(result["quick"] for result in results)})
    heading = f"{count(len(results), 'experiment')}, really run"
    return Page("Experiments", heading, lead, panels, notes=notes, provenance=provenance)


def _overview(results: Sequence[Result]) -> Panel:
    counts = (Column(PLURALS[verdict], "number") for verdict in SIGNS)
    columns = (Column("experiment"), Column("about", "prose"), *counts)
    rows = [
        (
            result["name"],
            result["title"],
            *(sum(claim["verdict"] == verdict for claim in result["claims"]) for verdict in SIGNS),
        )
        for result in results
    ]
    return Panel("overview", "Overview", "Overview", parts=(Table("Claims by verdict", columns, rows),))


def _lead(result: Result) -> str:
    verdicts = [claim["verdict"] for claim in result["claims"]]
    told = [_counted(verdicts.count(verdict), verdict) for verdict in SIGNS if verdict in verdicts]
    lead = (
        f"{count(len(verdicts), 'claim')} tested: {', '.join(told)}."
        if verdicts
        else "Measured, with no claim to test."
    )
    return f"{lead} This was the short form; its numbers are rougher." if result["quick"] else lead


def _counted(times: int, verdict: str) -> str:
    return f"{times} {(SINGULARS if times == 1 else PLURALS)[verdict]}"


def _claims(claims: Sequence[Result]) -> list[Panel]:
    if not claims:
        return []
    overview = Table(
        "What was claimed, and what measurement says",
        (Column("claim", "prose"), Column("source"), Column("measured"), Column("reading", "prose")),
        [(claim["text"], claim["source"], SIGNS.get(claim["verdict"], ""), claim["reading"]) for claim in claims],
    )
    columns = (
        Column("claim", "prose"),
        Column("setting"),
        Column("measure"),
        Column("value", "number"),
        Column("needed"),
        Column("borne out"),
    )
    rows = [
        (
            claim["text"],
            check["setting"],
            check["measure"],
            check["value"],
            check["criterion"],
            "yes" if check["holds"] else "no",
        )
        for claim in claims
        for check in claim["checks"]
    ]
    return [Panel("claims", "Claims", "Claims", parts=(overview, Table("Every check, in its setting", columns, rows)))]


def _tables(tables: Sequence[Result]) -> list[Panel]:
    return [
        Panel(f"table-{place}", table["title"], _short(table["title"]), reading=table["note"], parts=(_shown(table),))
        for place, table in enumerate(tables, start=1)
    ]


def _shown(table: Result) -> Table:
    rows: list[list[Cell]] = table["rows"]
    kinds = [
        "text" if any(isinstance(row[at], str) and row[at] not in ("nan", "inf", "-inf") for row in rows) else "number"
        for at in range(len(table["columns"]))
    ]
    columns = tuple(Column(name, kind) for name, kind in zip(table["columns"], kinds, strict=True))
    return Table(table["title"], columns, rows)


def _short(title: str) -> str:
    """Return the first words of a title, for the navigation."""
    return " ".join(title.split(":", maxsplit=1)[0].split()[:NAVIGATION_WORDS])
