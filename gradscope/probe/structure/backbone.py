"""The stream of a network: the ordered places from input to loss that all gradients pass.

Its places are the dominators of the input in the graph seen from the loss: the outputs of the layers of a plain
network, the sums of a residual one. Of an encoder and decoder the encoder's places come first.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from gradscope.probe.structure.chains import along_skips, ends_of, repeated_sites, streams_of
from gradscope.probe.structure.dominance import Dominators
from gradscope.probe.structure.graph import Graph, Tensor
from gradscope.probe.structure.places import Places, ancestry
from gradscope.probe.structure.settling import settled, start_of
from gradscope.probe.structure.sites import Site
from gradscope.probe.structure.stations import blocks_on
from gradscope.probe.watching.calls import Call


@dataclass(slots=True)
class Station:
    """A place of the stream; the columns of the record's `stream` table.

    Attributes:
        name: The module that returns it, or the site that makes it.
        kind: start, addition, block or end.
        block: The repeated block that it closes or lies in.
        call: The call that returns it, None where no call does.
        site: The number of the site whose sum it is, None where it is no sum.
        tensor: Its place in the graph.
        node: The autograd node that makes it.
        output_nr: Which output of that node it is.
        is_sum: It is the sum itself, not what a norm or an activation made of it.
        num_elements: How many elements it has.
    """

    name: str
    kind: str
    block: str | None
    call: Call | None
    site: int | None
    tensor: Tensor
    node: Any
    output_nr: int
    is_sum: bool = False
    num_elements: int | None = None

    @property
    def module(self) -> str:
        """The module that returns it, or whose addition it is."""
        return "" if self.call is None else self.call.module


def find_stations(
    graph: Graph, places: Places, sites: list[Site], dominators: Dominators, parents: set[str]
) -> list[Station]:
    """Return the stations of the stream, from the input to the loss."""
    numbers = {site.node: number for number, site in enumerate(sites) if site.counted and site.alive}
    with_sites = {call for node in numbers for call in ancestry(sites[numbers[node]].call)}
    stations: list[Station] = []
    streams = streams_of(graph, dominators, {node: sites[number] for node, number in numbers.items()})
    repeated = repeated_sites([sites[number] for number in numbers.values()])
    if 2 * sum(node in numbers for stream in streams for node in stream) < len(repeated):
        streams = [sorted({node for site in repeated for node in ends_of(site)})]
    for chain in streams:
        stations += _stations_of(graph, places, sites, numbers, chain, parents, with_sites)
    along = along_skips(graph, {node: sites[number] for node, number in numbers.items()})
    if 2 * len(stations) < sum(node in numbers for node in along):
        stations = _stations_of(graph, places, sites, numbers, along, parents, with_sites)
    names = _several(stations)
    for station in stations:
        if station.name in names and station.call is not None and station.call.module == station.name:
            station.name = f"{station.name}@{station.call.call}"
    _assign_depths(sites, stations)
    return stations


def _stations_of(
    graph: Graph,
    places: Places,
    sites: list[Site],
    numbers: dict[int, int],
    chain: list[int],
    parents: set[str],
    with_sites: set[Call],
) -> list[Station]:
    on_chain = [numbers[node] for node in chain if node in numbers]
    blocks = blocks_on(graph, places, chain, parents, with_sites if on_chain else set())
    ends = settled(graph, [sites[number] for number in on_chain], set(chain))
    tensors: dict[Tensor, int | None] = dict(zip(ends, on_chain, strict=True))
    for tensor in blocks:
        tensors.setdefault(tensor, None)
    start = start_of(graph, places, [sites[n] for n in on_chain], blocks, chain)
    if start is not None:
        tensors.setdefault(start, None)
    return [
        _station(graph, places, sites, tensor, tensors[tensor], blocks, tensor == start)
        for tensor in sorted(tensors)
        if graph.gradient_of(tensor) is not None
    ]


def _station(
    graph: Graph,
    places: Places,
    sites: list[Site],
    tensor: Tensor,
    site: int | None,
    blocks: dict[Tensor, Call],
    is_start: bool,
) -> Station:
    block = blocks.get(tensor)
    returned = places.returned.get(tensor, [])
    call = block if block is not None else (returned[0] if returned else None)
    if site is not None and call is None:
        call = sites[site].call
    kind = "start" if is_start else ("block" if block is not None else "addition")
    if block is not None or site is None:
        name = call.module if call is not None and call.module else _described(graph, places, tensor[0])
    else:
        name = sites[site].name
    inside = ancestry(call if call is not None else places.owner(tensor[0]))
    lies_in = next((other.module for other in inside if other in set(blocks.values())), None)
    shape = graph.shape(tensor)
    node, output_nr = graph.gradient_of(tensor) or (None, 0)
    return Station(
        name=name,
        kind=kind,
        block=lies_in,
        call=call,
        site=site,
        tensor=tensor,
        node=node,
        output_nr=output_nr,
        is_sum=site is not None and tensor[0] == sites[site].node,
        num_elements=None if shape is None else math.prod(shape),
    )


_NEAR = 12
"""Nodes looked at behind an operation that no module stands for, to say in words what it works on."""


def _described(graph: Graph, places: Places, node: int) -> str:
    """Name an operation between modules by the modules it works on: "tokens + positions", "view of patches"."""
    modules: list[str] = []
    waiting, seen = [node], {node}
    while waiting and len(seen) < _NEAR:
        for source, number, _ in graph.inputs[waiting.pop(0)]:
            calls = places.returned.get((source, number), [])
            if calls and calls[0].module:
                modules.append(calls[0].module)
            elif source not in seen:
                seen.add(source)
                waiting.append(source)
    operation = graph.names[node].lower()
    if not modules:
        return f"{operation} output"
    if operation == "add":
        return " + ".join([*modules, "…"] if len(modules) == 1 else modules)
    return f"{operation} of {', '.join(modules)}"


def _several(stations: list[Station]) -> set[str]:
    counts = Counter(station.name for station in stations if station.call is not None)
    return {name for name, count in counts.items() if count > 1}


def _assign_depths(sites: list[Site], stations: list[Station]) -> None:
    """Give every site its station; the sites of a parallel group that of the group's last."""
    of_group: dict[int, int] = {}
    for row, station in enumerate(stations):
        if station.site is not None:
            sites[station.site].depth = row
            of_group[sites[station.site].group] = row
    for site in sites:
        if site.depth is None and site.counted:
            site.depth = of_group.get(site.group)
