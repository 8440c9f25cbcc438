"""Where things are on the page: module names to stations of the stream and rows of the module table."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.depth import Station
from gradscope.rules.finding import Finding

WHOLE_MODEL = "(whole model)"


def shown_name(module: str) -> str:
    """Return a module's name as the page writes it."""
    return module or WHOLE_MODEL


def station_of(module: str, call: int, stations: Sequence[Station]) -> int | None:
    """Return the index of the station that a module closes, lies in or contains; None where it is off the stream."""
    if not module:
        return None
    for wanted in ((module, call), (module, None)):
        for index, station in enumerate(stations):
            if station.module == wanted[0] and wanted[1] in (None, station.call):
                return index
    holders = [
        i
        for i, station in enumerate(stations)
        for name in (station.block, station.module)
        if name and module.startswith(name + ".")
    ]
    if holders:
        return holders[-1]
    inside = [
        i
        for i, station in enumerate(stations)
        for name in (station.block, station.module)
        if name and name.startswith(module + ".")
    ]
    return inside[0] if inside else None


def culprits(
    findings: Sequence[Finding], stations: Sequence[Station], families: tuple[str, ...]
) -> list[tuple[int, Finding]]:
    """List the findings of some families that have a station, the gravest of each station only."""
    found: dict[int, Finding] = {}
    for finding in findings:
        if finding.code.startswith(families) and finding.severity != "info":
            index = station_of(finding.module, finding.call, stations)
            if index is not None:
                found.setdefault(index, finding)
    return sorted(found.items())
