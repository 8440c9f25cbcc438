"""The stream of a network: the ordered places from input to loss.

Its places are the dominators of the input in the graph seen from the loss, which all gradients pass: the outputs of the
layers of a plain network, the sums of a residual one. Of an encoder and decoder the encoder's places come first. Where
gradients have ways round the blocks, the places are those that follow one another on the longest way.
"""

from __future__ import annotations

from collections import Counter

from gradscope.probe.structure.blocks import blocks_on
from gradscope.probe.structure.chains import along_skips, handed_on, longest_line, outermost, streams_of
from gradscope.probe.structure.dominance import Dominators
from gradscope.probe.structure.normalised import forgets_size
from gradscope.probe.structure.places import ancestry
from gradscope.probe.structure.sites import Site
from gradscope.probe.structure.stations import Network, Station, stations_along

_FEW = 3
"""So few stations are no profile where a line of twice as many blocks can be found."""


def find_stations(network: Network, dominators: Dominators) -> list[Station]:
    """Return the stations of the stream, from the input to the loss."""
    graph, counted = network.graph, network.counted
    streams = streams_of(graph, dominators, counted)
    stations = [station for chain in streams for station in stations_along(network, chain)]
    line = along_skips(graph, counted)
    if 2 * _num_blocks(network, stations) < sum(node in counted for node in line):
        stations = stations_along(network, line)
    line = longest_line(graph, dominators, outermost(counted))
    if 2 * _num_blocks(network, stations) <= len(line) > 1:
        stations = stations_along(network, line)
    elif len(stations) <= _FEW:
        live = [node for node in range(len(graph.nodes)) if dominators.reaches(node) and not graph.is_raw(node)]
        blocks = blocks_on(graph, network.places, live, network.parents, set())
        line = longest_line(graph, dominators, handed_on(graph, dominators, blocks))
        if 2 * len(stations) <= len(line):
            stations = stations_along(network, line)
    names = _several(stations)
    for station in stations:
        if station.name in names and station.call is not None and station.call.module == station.name:
            station.name = f"{station.name}@{station.call.call}"
    _assign_depths(network.sites, stations)
    if stations:
        stations[-1].forgotten = forgets_size(graph, stations[-1].tensor)
    return stations


def _num_blocks(network: Network, stations: list[Station]) -> int:
    """How many stations are residual sums or outputs of blocks that have some inside."""
    with_sites = network.with_sites
    return sum(station.site is not None or station.call in with_sites for station in stations)


def _several(stations: list[Station]) -> set[str]:
    counts = Counter(station.name for station in stations if station.call is not None)
    return {name for name, count in counts.items() if count > 1}


def _assign_depths(sites: list[Site], stations: list[Station]) -> None:
    """Give every site its station: its sum, its parallel group's last, or the output of the block it lies in."""
    of_group: dict[int, int] = {}
    for row, station in enumerate(stations):
        if station.site is not None:
            sites[station.site].depth = row
            of_group[sites[station.site].group] = row
    closing = {station.call: row for row, station in enumerate(stations) if station.site is None}
    for site in sites:
        if site.depth is None and site.counted:
            inside = (closing[call] for call in ancestry(site.call) if call in closing)
            site.depth = of_group.get(site.group, next(inside, None))
