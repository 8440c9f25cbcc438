"""The stream of a network: the ordered places from input to loss that all gradients pass.

Its places are the dominators of the input in the graph seen from the loss: the outputs of the layers of a plain
network, the sums of a residual one. Of an encoder and decoder the encoder's places come first.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from gradscope.probe.structure.dominance import Dominators
from gradscope.probe.structure.graph import Graph, Tensor, Trace
from gradscope.probe.structure.lineage import settled_from
from gradscope.probe.structure.normalised import normaliser
from gradscope.probe.structure.operations import Effect
from gradscope.probe.structure.places import Places, ancestry
from gradscope.probe.structure.sites import Site
from gradscope.probe.structure.stations import DIGITS, blocks_on
from gradscope.probe.watching.calls import Call

_MAX_STREAMS = 4
"""Streams that feed one another (encoders of a decoder); more are not looked for."""


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
    streams = _streams(graph, dominators, {node: sites[number] for node, number in numbers.items()})
    repeated = _repeated_sites([sites[number] for number in numbers.values()])
    if 2 * sum(node in numbers for stream in streams for node in stream) < len(repeated):
        streams = [sorted({node for site in repeated for node in _ends_of(site)})]
    for chain in streams:
        stations += _stations_of(graph, places, sites, numbers, chain, parents, with_sites)
    along = _along_skips(graph, {node: sites[number] for node, number in numbers.items()})
    if 2 * len(stations) < sum(node in numbers for node in along):
        stations = _stations_of(graph, places, sites, numbers, along, parents, with_sites)
    names = _several(stations)
    for station in stations:
        if station.name in names and station.call is not None and station.call.module == station.name:
            station.name = f"{station.name}@{station.call.call}"
    _assign_depths(sites, stations)
    return stations


def _along_skips(graph: Graph, sites: dict[int, Site]) -> list[int]:
    """The longest line of sums that add to one another, with the joins.

    It is the stream where something is handed past it to every block, such as the first block's values: gradients have
    a way round each sum then.
    """
    before: dict[int, int | None] = {}
    length: dict[int, int] = {}
    for number, site in sorted(sites.items()):
        ends = settled_from(graph, site.residual.join) if site.residual is not None else ()
        last = before[number] = next((end for end in ends if end in length), None)
        length[number] = 1 + (length[last] if last is not None else 0)
    node = max(length, key=length.__getitem__, default=None)
    line: set[int] = set()
    while node is not None:
        line.update(_ends_of(sites[node]))
        node = before[node]
    return sorted(line)


def _repeated_sites(sites: list[Site]) -> list[Site]:
    """The sites of the blocks that are repeated most often: the stream where the input goes to each block."""
    series: dict[str, list[Site]] = defaultdict(list)
    for site in sites:
        series[DIGITS.sub("#", site.module)].append(site)
    most = max(series.values(), key=len, default=[])
    return most if len(most) > _MIN_REPEATED else []


_MIN_REPEATED = 2


def _ends_of(site: Site) -> tuple[int, ...]:
    return (site.node,) if site.residual is None else (site.residual.join[0], site.node)


def _streams(graph: Graph, dominators: Dominators, sites: dict[int, Site]) -> list[list[int]]:
    """Return chains of dominators in the order in which they run. `sites` are those counted, by their sum."""
    sums = set(sites)
    sources = [
        node
        for node in range(len(graph.nodes))
        if dominators.reaches(node)
        and not graph.parametric[node]
        and node not in graph.tokens
        and all(graph.parametric[source] for source, _, _ in graph.inputs[node])
    ]
    chains: list[list[int]] = []
    used: set[int] = set()
    for _ in range(_MAX_STREAMS):
        if not sources:
            break
        chain = dominators.chain(max(sources, key=_rank(graph, dominators, sums, used)))
        fresh = [node for node in chain if node not in used]
        if chains and not (sums & set(fresh) and _feeds(fresh, chain, chains[0])):
            break
        if not chains or sums & set(fresh) - _on_branches(chains[0], sites):
            chains.append(chain)
        used.update(chain)
    return _one_after_another(chains, sums)


def _on_branches(chain: list[int], sites: dict[int, Site]) -> set[int]:
    """What lies on the branches of a stream's blocks: a sum that a position enters there is no stream of its own."""
    residuals = [site.residual for node in chain if (site := sites.get(node)) is not None]
    return set().union(*(residual.region.members for residual in residuals if residual is not None))


def _one_after_another(chains: list[list[int]], sums: set[int]) -> list[list[int]]:
    """Order streams by their first sum; what two share belongs to the later one: the decoder's end is no encoder's."""
    chains = sorted(chains, key=lambda chain: min((node for node in chain if node in sums), default=0))
    later: set[int] = set()
    streams: list[list[int]] = []
    for chain in reversed(chains):
        streams.insert(0, sorted(node for node in chain if node not in later))
        later.update(chain)
    return streams


def _rank(graph: Graph, dominators: Dominators, sums: set[int], used: set[int]) -> Any:
    count = [0] * (len(graph.nodes) + 1)
    for node in range(len(graph.nodes) - 1, -1, -1):
        if dominators.reaches(node):
            count[node] = count[dominators.parent[node]] + (node in sums and node not in used)
    return lambda node: (count[node], dominators.depth(node), -node)


def _feeds(fresh: list[int], chain: list[int], main: list[int]) -> bool:
    """Tell whether a stream flows into the main one before that ends, instead of standing beside it up to the loss."""
    meeting = chain[len(fresh)] if len(fresh) < len(chain) else None
    return meeting is not None and meeting in main and any(node > meeting for node in main)


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
    settled = _settled(graph, [sites[number] for number in on_chain], set(chain))
    tensors: dict[Tensor, int | None] = dict(zip(settled, on_chain, strict=True))
    for tensor in blocks:
        tensors.setdefault(tensor, None)
    start = _start(graph, places, [sites[n] for n in on_chain], blocks, chain)
    if start is not None:
        tensors.setdefault(start, None)
    return [
        _station(graph, places, sites, tensor, tensors[tensor], blocks, tensor == start)
        for tensor in sorted(tensors)
        if not isinstance(graph.nodes[tensor[0]], Trace)
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
    return Station(
        name=name,
        kind=kind,
        block=lies_in,
        call=call,
        site=site,
        tensor=tensor,
        node=graph.nodes[tensor[0]],
        output_nr=tensor[1],
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


def _settled(graph: Graph, sites: list[Site], chain: set[int]) -> list[Tensor]:
    """For each sum what the next block takes in: the sum itself, or what a norm or an activation made of it first."""
    found: list[Tensor] = []
    names: list[str] = []
    for i, site in enumerate(sites):
        following = sites[i + 1] if i + 1 < len(sites) else None
        own = (site.node, 0)
        if following is None:
            found.append(_alike(graph, own, names))
            continue
        tensor = following.residual.join if following.residual is not None else own
        path = _path(graph, own, tensor, chain)
        if path is None:
            found.append(own)
        else:
            names = path
            found.append(tensor)
    return found


_SETTLING = frozenset({Effect.HAND_ON, Effect.NORM, Effect.BEND, Effect.SCALE, Effect.REDUCE, Effect.ADD})
_MAX_SETTLING = 16


def _path(graph: Graph, start: Tensor, end: Tensor, chain: set[int]) -> list[str] | None:
    """Return the dominators between a sum and what the next block takes in, None where real work lies in between."""
    if start == end:
        return []
    if not (start[0] < end[0] and end[0] in chain):
        return None
    between = (
        [node for node in sorted(chain) if start[0] < node <= end[0]] if end[0] - start[0] < 4 * _MAX_SETTLING else []
    )
    if not between or any(graph.effects[node] not in _SETTLING for node in between):
        return None
    return [graph.names[node] for node in between]


def _alike(graph: Graph, own: Tensor, names: list[str]) -> Tensor:
    """Do with the last sum what was done with the one before it."""
    if not names:
        return own
    norm = normaliser(graph, own)
    tensor = own
    for name in names:
        readers = graph.readers(tensor)
        following = next((node for node, _ in readers if graph.names[node] == name), None)
        if following is None:
            return own if norm is None else (norm, 0)
        tensor = (following, 0)
    return tensor


def _start(
    graph: Graph, places: Places, sites: list[Site], blocks: dict[Tensor, Call], chain: list[int]
) -> Tensor | None:
    """What the first block takes in: the output of the embedding or the stem; None where that is the raw input."""
    join = sites[0].residual.join if sites and sites[0].residual is not None else None
    if blocks:
        first = min(blocks)
        inside = [node for node in chain if node <= first[0] and blocks[first] in ancestry(places.owner(node))]
        before = [node for node in chain if inside and node < inside[0]]
        if before and (join is None or before[-1] < join[0]):
            return None if isinstance(graph.nodes[before[-1]], Trace) else (before[-1], 0)
    if join is None or isinstance(graph.nodes[join[0]], Trace):
        return None
    return join


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
