"""Two or more models side by side: verdicts, headline numbers, depth profiles and findings in one page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gradscope.metrics.depth import DepthProfile
from gradscope.metrics.facts import Facts
from gradscope.metrics.spread import spread
from gradscope.record import Recording
from gradscope.report.html.chart import Axis, Chart, Role, Series
from gradscope.report.html.pages import Page, html_page, write_page
from gradscope.report.html.panel import Cell, Column, Panel, Table, picture
from gradscope.report.html.scale import finite
from gradscope.report.html.sharing import shareable, shared, shorten
from gradscope.report.html.views.places import shown_name
from gradscope.report.html.views.verdict import VERDICTS, headline_facts
from gradscope.report.html.wording import count, listed
from gradscope.rules.finding import Diagnosis

ROLES: tuple[Role, ...] = ("main", "branch", "third", "other", "bad", "law")
"""Line colours; with more models the colours come round again, dashed."""
RANK = ("will-train", "cannot-say", "at-risk", "will-not-train")
"""Verdicts from the best to the worst."""


@dataclass(frozen=True)
class Compared:
    """One of the models.

    Attributes:
        name: What to call it.
        recording: What was measured.
        diagnosis: How it was judged.
        seeds: The same model measured with several seeds, where it was; its line is then their median with a band.
    """

    name: str
    recording: Recording
    diagnosis: Diagnosis
    seeds: Sequence[Recording] = ()


@dataclass(frozen=True)
class Comparison:
    """What is compared.

    Attributes:
        models: The models, the reference first.
        differences: Extra tables, such as differences with their spread over seeds.
        lead: The sentence to take away; by default who will train and who will not.
    """

    models: Sequence[Compared]
    differences: Sequence[Table] = field(default=())
    lead: str = ""


def write_comparison(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Write the page of a comparison.

    Raises:
        RecordError: The file cannot be written.
    """
    write_page(comparison_page(comparison), path)


def html_comparison(comparison: Comparison) -> str:
    """Return the page of a comparison as one HTML document."""
    return html_page(comparison_page(comparison))


def comparison_page(comparison: Comparison) -> Page:
    """Build the page of a comparison."""
    models = [replace(m, name=shared(m.name), recording=shareable(m.recording)) for m in comparison.models]
    facts = [Facts(model.recording) for model in models]
    panels = [
        Panel("numbers", "Side by side", "Numbers", parts=(_numbers(models, facts), *comparison.differences)),
        _profiles(models, facts),
        _findings(models),
    ]
    names = listed([shorten(model.name, 24) for model in models[:4]] + (["others"] if len(models) > 4 else []))  # noqa: PLR2004
    return Page("Comparison", names, comparison.lead or _lead(models), panels, provenance=_provenance(models))


def _lead(models: Sequence[Compared]) -> str:
    """Name the models of each verdict."""
    parts = []
    for verdict in RANK:
        names = [shorten(model.name, 40) for model in models if model.diagnosis.verdict == verdict]
        if names:
            parts.append(f"{VERDICTS[verdict][0]}: {listed(names)}.")
    return " ".join(parts)


def _numbers(models: Sequence[Compared], facts: Sequence[Facts]) -> Table:
    """List headline numbers, one row a number, one column a model."""
    columns = [
        {fact.name.partition(", step")[0]: fact for fact in headline_facts(f, m.diagnosis)}
        for f, m in zip(facts, models, strict=True)
    ]
    rows: list[list[Cell]] = [["Verdict", *(VERDICTS[model.diagnosis.verdict][0] for model in models)]]
    names = dict.fromkeys(name for column in columns for name in column)
    rows += [[name, *(column[name].value if name in column else "–" for column in columns)] for name in names]
    codes = [
        " ".join(dict.fromkeys(f.code for f in m.diagnosis.findings if f.severity != "info")) or "none" for m in models
    ]
    rows.append(["Findings", *codes])
    return Table("Headline numbers", (Column("number"), *(Column(shorten(model.name, 32)) for model in models)), rows)


def _profiles(models: Sequence[Compared], facts: Sequence[Facts]) -> Panel:
    layers = []
    for place, (model, fact) in enumerate(zip(models, facts, strict=True)):
        if fact.profile and finite(fact.profile.gradient_decades):
            dash = place >= len(ROLES)
            layers.append(_line(model, fact.profile, ROLES[place % len(ROLES)], dash=dash))
    if not layers:
        return Panel("profile", "Gradient along the depth", "Depth", missing="None of the models has a depth profile.")
    chart = Chart(
        "chart-profiles",
        "Gradient norm relative to the loss end, against relative depth, at the first step",
        f"{count(len(layers), 'model')}; 0 is the input, 1 the loss end, whatever the number of layers.",
        Axis("depth: 0 input → 1 loss", low=0.0, high=1.0),
        Axis("gradient, relative to the loss end", log=True),
        tuple(layers),
    )
    return Panel("profile", "Gradient along the depth", "Depth", chart.summary, (picture(chart),))


def _line(model: Compared, profile: DepthProfile, role: Role, *, dash: bool) -> Series:
    name, last = shorten(model.name, 40), max(len(profile.stations) - 1, 1)
    places = [round(place / last, 4) for place in range(len(profile.stations))]
    seeds = [found.gradient_decades for seed in model.seeds if (found := Facts(seed).profile)]
    seeds = [values for values in seeds if len(values) == len(places)]
    if len(seeds) < 2:  # noqa: PLR2004 - a spread needs two
        return Series(name, places, profile.gradient_decades, role, dash=dash)
    spreads = [spread(values) for values in zip(*seeds, strict=True)]
    return Series(
        f"{name}, median of {len(seeds)} seeds",
        places,
        [item.median if item else None for item in spreads],
        role,
        low=[item.low if item else None for item in spreads],
        high=[item.high if item else None for item in spreads],
        dash=dash,
    )


def _findings(models: Sequence[Compared]) -> Panel:
    rows = [
        (
            shorten(model.name, 32),
            finding.code,
            finding.severity,
            shown_name(shared(finding.module)),
            shared(finding.message),
        )
        for model in models
        for finding in model.diagnosis.findings
    ]
    if not rows:
        return Panel("findings", "Findings", "Findings", missing="No rule found anything in any of the models.")
    columns = (Column("model"), Column("code"), Column("severity"), Column("where", "place"), Column("what", "prose"))
    return Panel("findings", "Findings", "Findings", parts=(Table("All findings", columns, rows),))


def _provenance(models: Sequence[Compared]) -> list[tuple[str, str]]:
    return [
        (
            shorten(model.name, 40),
            f"{run.target}; seed {'not set' if run.seed is None else run.seed}; {run.device}, {run.dtype}; "
            f"torch {run.torch}; gradscope {run.gradscope}",
        )
        for model in models
        for run in (model.recording.provenance,)
    ]
