"""The stations along one line of operations: what each is called, and which block or sum it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gradscope.probe.structure.blocks import blocks_on, layers_on
from gradscope.probe.structure.graph import Graph, Tensor
from gradscope.probe.structure.places import Places, ancestry
from gradscope.probe.structure.settling import closes_block, settled, start_of
from gradscope.probe.structure.sites import Site
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
        node: The autograd node that makes it; None inside of a checkpointed segment, before that is run again.
        output_nr: Which output of that node it is.
        is_sum: It is the sum itself, not what a norm or an activation made of it.
        num_elements: How many elements it has.
        forgotten: Its size makes no difference to the losses: all that reads it divides by it.
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
    forgotten: bool = False

    @property
    def module(self) -> str:
        """The module that returns it, or whose addition it is."""
        return "" if self.call is None else self.call.module


@dataclass(frozen=True)
class Network:
    """What the stations of a network are made from.

    Attributes:
        graph: The graph.
        places: Who ran what.
        sites: The residual additions and concatenations.
        parents: Names of modules that have modules inside.
        parameters: The names of the model's parameters by the parameter's id.
    """

    graph: Graph
    places: Places
    sites: list[Site]
    parents: set[str]
    parameters: Mapping[int, str]

    @cached_property
    def numbers(self) -> dict[int, int]:
        """The numbers of the sites that count and matter to a loss, by their sum."""
        return {site.node: number for number, site in enumerate(self.sites) if site.counted and site.alive}

    @cached_property
    def counted(self) -> dict[int, Site]:
        """The sites that count and matter to a loss, by their sum."""
        return {node: self.sites[number] for node, number in self.numbers.items()}

    @cached_property
    def with_sites(self) -> set[Call]:
        """The calls with residual additions inside."""
        return {call for site in self.counted.values() for call in ancestry(site.call)}


def stations_along(network: Network, chain: list[int]) -> list[Station]:
    """Return the stations on a line of operations, in the order in which they run."""
    graph, places, sites, numbers = network.graph, network.places, network.sites, network.numbers
    sums = [node for node in chain if node in numbers]
    if sums and not any(_has_gradient(graph, (node, 0)) for node in sums):
        return []  # all of them in a function with a backward of its own: its two ends are no profile
    on_chain = [numbers[node] for node in sums]
    blocks = blocks_on(graph, places, chain, network.parents, network.with_sites)
    if not (blocks or on_chain):
        blocks = blocks_on(graph, places, chain, network.parents, set())
    layers = {} if blocks or on_chain else layers_on(graph, places, chain, network.parameters)
    ends = settled(graph, [sites[number] for number in on_chain], set(chain))
    ends = [
        closes_block(graph, sites[number].node, end, blocks, chain) for number, end in zip(on_chain, ends, strict=True)
    ]
    tensors: dict[Tensor, int | None] = dict(zip(ends, on_chain, strict=True))
    for tensor in (*blocks, *layers):
        tensors.setdefault(tensor, None)
    start = start_of(graph, places, [sites[n] for n in on_chain], blocks, chain)
    if start is not None:
        tensors.setdefault(start, None)
    return [
        _station(network, tensor, tensors[tensor], blocks, layers.get(tensor), tensor == start)
        for tensor in sorted(tensors)
        if _has_gradient(graph, tensor)
    ]


def _has_gradient(graph: Graph, tensor: Tensor) -> bool:
    """Tell whether a tensor's gradient comes by, in the backward pass or where that runs a segment again."""
    return graph.gradient_of(tensor) is not None or graph.segment_of(tensor[0]) is not None


def _station(
    network: Network,
    tensor: Tensor,
    site: int | None,
    blocks: dict[Tensor, Call],
    layer: str | None,
    is_start: bool,
) -> Station:
    graph, places, sites = network.graph, network.places, network.sites
    block = blocks.get(tensor)
    returned = places.returned.get(tensor, [])
    call = block if block is not None else (returned[0] if returned else None)
    if site is not None and call is None:
        call = sites[site].call
    kind = "start" if is_start else ("block" if block is not None or layer is not None else "addition")
    if layer is not None:
        name = layer
    elif block is not None or site is None:
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
_MOST_NAMED = 2
"""Modules that its name lists: four embeddings that are added up are not read."""


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
    if len(modules) > _MOST_NAMED:
        modules = [*modules[:_MOST_NAMED], "…"]
    if operation == "add":
        return " + ".join([*modules, "…"] if len(modules) == 1 else modules)
    return f"{operation} of {', '.join(modules)}"
