"""Where to point: the first bad place of a profile, and what kind of network lies around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gradscope.metrics.along import steepest
from gradscope.metrics.depth import DepthProfile, Station
from gradscope.metrics.facts import Facts
from gradscope.rules.finding import Finding, Severity, Value

CLIFF_SHARE = 0.5
"""Share of the whole change (fraction) that one block must cause to be blamed alone: more than all others together."""

FEWEST_TO_COMPARE = 3
"""Blocks (count) of which one can be blamed alone: two others that agree."""


@dataclass(frozen=True)
class Place:
    """The station to blame and whether it alone causes most of the change."""

    station: Station
    alone: bool
    jump_decades: float | None


def depth_culprit(profile: DepthProfile, total: float) -> Place:
    """Return the block that causes most of a change of `total` decades, else the first block of the gradual decay."""
    most = steepest(profile, total) if profile.num_blocks >= FEWEST_TO_COMPARE else None
    if most is not None and most.beyond_decades > CLIFF_SHARE * abs(total):
        return Place(profile.stations[most.index], True, most.jump_decades)
    first = profile.ends[0]
    if profile.stations[first].kind == "start" and profile.num_blocks > 0:
        first = profile.ends[1]
    return Place(profile.stations[first], False, None)


def finding_at(
    facts: Facts,
    code: str,
    severity: Severity,
    module: str,
    message: str,
    evidence: Mapping[str, Value],
    advice: str,
    call: int = 0,
) -> Finding:
    """Return a finding with the file and line of its module's class in the user's code."""
    file, line = facts.place(module)
    return Finding(code, severity, module, message, advice, evidence, call, file, line)


def station_module(station: Station) -> str:
    """Return the name to print for a station: its module, or its block where the module is the whole model."""
    return station.module or station.block or station.name


def station_label(station: Station) -> str:
    """Return the name to print for a station; that of a module that is called again says which call."""
    return station.name if "@" in station.name else station_module(station)


def common_module(names: Sequence[str]) -> str:
    """Return the deepest module that contains all the named ones, "" where only the model does."""
    if not names:
        return ""
    parts = [name.split(".") for name in names]
    shared = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return ".".join(shared)


@dataclass(frozen=True)
class Surroundings:
    """What kind of network it is, as far as advice depends on it."""

    has_skips: bool
    has_norms: bool
    has_attention: bool
    has_sigmoids: bool
    normalised_branches: bool
    post_norm: bool
    output_norm_only: bool


def surroundings(facts: Facts) -> Surroundings:
    """Look at the modules and residual additions of a recording."""
    sites = [site for site in facts.sites if site.counted and site.on_stream] or [s for s in facts.sites if s.counted]
    roles = {module.role for module in facts.modules.values() if module.called}
    types = {module.type for module in facts.modules.values() if module.called}
    return Surroundings(
        has_skips=bool(sites),
        has_norms="norm" in roles,
        has_attention="attention" in roles or any(p.role in ("query", "query_key_value") for p in facts.parameters),
        has_sigmoids=bool(types & {"Sigmoid", "LogSigmoid", "Hardsigmoid"}),
        normalised_branches=bool(sites) and any(site.normalised for site in sites),
        post_norm=bool(sites) and sum(site.placement == "post" for site in sites) * 2 > len(sites),
        output_norm_only=bool(sites) and all(site.placement == "output" for site in sites),
    )
