"""Residual flow: what each branch adds to the stream, and which way the gradient takes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradscope.metrics.columns import log10_ratio
from gradscope.metrics.facts import Facts
from gradscope.metrics.residual import Site, effective_path_length
from gradscope.report.html.chart import DOTS_UP_TO, Axis, Chart, Number, Role, Series, Zone
from gradscope.report.html.panel import Column, Panel, Picture, Table, picture
from gradscope.report.html.views import stream_diagram
from gradscope.report.html.wording import count, number, percent
from gradscope.rules.finding import Diagnosis

TABLE_ROWS = 24
READING = (
    "The thick line is the residual stream. At each ⊕ a branch adds its result to it. On the way back the gradient "
    "splits there: line widths show which share of its energy takes the skip and which the branch. "
    "A healthy deep network sends most of it through the skips."
)
TURNS: tuple[tuple[Role, Role], ...] = (("main", "branch"), ("third", "other"))
"""Colours of the forward and the backward line, of the first and of the second pair."""
FEWEST_OF_A_KIND = 3
CONTAINERS = ("Sequential", "ModuleList", "ModuleDict", "Module")
"""Library classes that say nothing of what they hold."""
NO_SITES = "No residual addition was found: the gradient has to pass through every layer, one after the other."


def flow_panel(facts: Facts, diagnosis: Diagnosis) -> Panel:
    """Build the panel."""
    sites = [site for site in facts.sites if site.counted]
    if not sites:
        uncounted = len(facts.sites)
        why = NO_SITES if not uncounted else f"{NO_SITES} ({count(uncounted, 'concatenation')} not counted.)"
        return Panel("flow", "Residual flow", "Residual", missing=why)
    parts: list[Picture | Table] = [_diagram(facts, sites, diagnosis)]
    if any(site.forward_ratio is not None or site.backward_ratio is not None for site in sites):
        parts.append(picture(ratio_chart(facts), _table(sites)))
    if any(site.branch_energy_share is not None for site in sites):
        parts.append(picture(share_chart(sites)))
    if any(site.cosine is not None for site in sites):
        parts.append(picture(cosine_chart(sites)))
    return Panel("flow", "Residual flow", "Residual", lead(sites), tuple(parts), reading=READING)


def lead(sites: Sequence[Site]) -> str:
    """Say what the additions do, in numbers."""
    words = [f"{count(len(sites), 'residual addition')} in one forward pass."]
    shares = [site.branch_energy_share for site in sites if site.branch_energy_share is not None]
    if shares:
        low, high = min(shares), max(shares)
        span = percent(low) if percent(low) == percent(high) else f"{percent(low)} to {percent(high)}"
        words.append(f"Of the gradient's energy {span} takes the branch, the rest the skip.")
    length = effective_path_length(sites)
    if length is not None:
        words.append(
            f"On average it passes {number(length, 2)} of {count(len(sites), 'branch', 'branches')} on its way back."
        )
    return " ".join(words)


def _diagram(facts: Facts, sites: Sequence[Site], diagnosis: Diagnosis) -> Picture:
    bad = blamed(sites, diagnosis)
    additions = [
        stream_diagram.Drawn(site, name, branch_name(facts, site), place in bad)
        for place, (site, name) in enumerate(zip(sites, labels(sites), strict=True))
    ]
    return Picture(
        "The residual stream, first to last", lead(sites), stream_diagram.draw(additions), stream_diagram.HEIGHT
    )


def labels(sites: Sequence[Site]) -> tuple[str, ...]:
    """Name the additions: by their module where it has one only, else by module and branch."""
    modules = [site.module for site in sites]
    return tuple(site.module if site.module and modules.count(site.module) == 1 else site.name for site in sites)


def branch_name(facts: Facts, site: Site) -> str:
    """Say what a branch is: the class of its last module that is not a norm, or its own name."""
    known = [facts.modules[name] for name in site.branches if name in facts.modules]
    working = [module for module in known if module.role != "norm"] or known
    if not working:
        return "branch"
    last = working[-1]
    return last.type if last.type not in CONTAINERS else last.name.rpartition(".")[2]


def blamed(sites: Sequence[Site], diagnosis: Diagnosis) -> list[int]:
    """List the additions that a GS2 finding names, by site or by module."""
    names = [
        finding.module
        for finding in diagnosis.findings
        if finding.code.startswith("GS2") and finding.severity != "info" and finding.module
    ]
    return [place for place, site in enumerate(sites) if any(name in (site.name, site.module) for name in names)]


def ratio_chart(facts: Facts) -> Chart:
    """Draw forward and backward ratios per addition."""
    counted = [site for site in facts.sites if site.counted]
    lines = _lines_by_branch(facts, counted) or _lines_by_step(facts)
    return Chart(
        "chart-ratio",
        "Branch relative to skip, forward and backward",
        "Size of what the branch adds, divided by the stream (forward), and of the gradient through the branch, "
        "divided by that through the skip (backward). Above the line at 1 the branch is larger than the stream.",
        Axis("residual additions: input → loss", names=labels(counted)),
        Axis("branch ÷ skip", log=True),
        tuple([line for line in lines if any(height is not None for height in line.y)]),
        zones=(Zone("y", 0.0, 0.0, "branch as large as skip"),),
    )


def _lines_by_branch(facts: Facts, sites: Sequence[Site]) -> tuple[Series, ...]:
    """Draw a line for each kind of branch where two take turns (attention and MLP): one line would zigzag."""
    kinds: dict[str, list[int]] = {}
    for place, site in enumerate(sites):
        kinds.setdefault(branch_name(facts, site), []).append(place)
    if len(kinds) != len(TURNS) or min(map(len, kinds.values())) < FEWEST_OF_A_KIND:
        return ()
    step = facts.steps[0]
    layers = []
    for (kind, places), (forward, backward) in zip(kinds.items(), TURNS, strict=True):
        dots = len(sites) <= DOTS_UP_TO
        for words, value, role in (("forward", _log_forward, forward), ("backward", _log_backward, backward)):
            heights = [value(sites[place]) for place in places]
            layers.append(Series(f"{kind}, {words}, step {step}", places, heights, role, dots=dots))
    return tuple(layers)


def _lines_by_step(facts: Facts) -> tuple[Series, ...]:
    """Draw a line for the first and one for the last watched step."""
    layers = []
    steps = dict.fromkeys((facts.steps[0], facts.steps[-1]))
    for step, (forward, backward) in zip(steps, TURNS, strict=False):
        sites = [site for site in facts.sites_at(step) if site.counted]
        layers.append(_line(f"forward, step {step}", sites, _log_forward, forward))
        layers.append(_line(f"backward, step {step}", sites, _log_backward, backward))
    return tuple(layers)


def share_chart(sites: Sequence[Site]) -> Chart:
    """Draw the shares of the gradient energy through skip and branch, stacked to 1."""
    skip = [None if site.branch_energy_share is None else 1 - site.branch_energy_share for site in sites]
    whole = [None if value is None else 1.0 for value in skip]
    x = range(len(sites))
    return Chart(
        "chart-share",
        "Which way the gradient takes back",
        lead(sites),
        Axis("residual additions: input → loss", names=labels(sites)),
        Axis("share of gradient energy", low=0.0, high=1.0),
        (
            Series("through the skip", x, skip, "skip", area=True),
            Series("through the branch", x, whole, "branch", area=True),
        ),
        height=260,
    )


def cosine_chart(sites: Sequence[Site]) -> Chart:
    """Draw the cosine between the gradients through skip and branch."""
    known = [site.cosine for site in sites if site.cosine is not None]
    return Chart(
        "chart-cosine",
        "Do skip and branch pull the same way?",
        f"Cosine between the two gradients at each addition, from {number(min(known), 2)} to {number(max(known), 2)}. "
        "0 is usual; near −1 the branch cancels the skip.",
        Axis("residual additions: input → loss", names=labels(sites)),
        Axis("cosine", low=-1.05, high=1.05),
        (_line("", sites, lambda site: site.cosine, "main"),),
        height=240,
        zones=(Zone("y", 0.0, 0.0, "unrelated"),),
    )


def _line(name: str, sites: Sequence[Site], value: Callable[[Site], Number], role: Role) -> Series:
    return Series(name, range(len(sites)), [value(site) for site in sites], role, dots=len(sites) <= DOTS_UP_TO)


def _log_forward(site: Site) -> Number:
    return log10_ratio(site.forward_ratio, 1.0)


def _log_backward(site: Site) -> Number:
    return log10_ratio(site.backward_ratio, 1.0)


def _table(sites: Sequence[Site]) -> Table:
    columns = (
        Column("addition", "place"),
        Column("kind"),
        Column("norm"),
        Column("forward ratio", "number", "forward ratio"),
        Column("backward ratio", "number", "backward ratio"),
        Column("cosine", "number", "cosine"),
        Column("gradient through branch", "number"),
        Column("source"),
    )
    rows = [
        (
            site.name,
            site.kind,
            site.placement,
            site.forward_ratio,
            site.backward_ratio,
            site.cosine,
            percent(site.branch_energy_share),
            f"{site.file}:{site.line}" if site.file else "",
        )
        for site in (sites if len(sites) <= TABLE_ROWS else [*sites[: TABLE_ROWS // 2], *sites[-TABLE_ROWS // 2 :]])
    ]
    caption = "Residual additions in order of execution"
    if len(sites) > TABLE_ROWS:
        caption += f": the first and last {TABLE_ROWS // 2} of {len(sites)}"
    return Table(caption, columns, rows)
