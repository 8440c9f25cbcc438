"""What one step's graph says about a network: residual sites, blocks and stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gradscope.probe.structure.additions import Key
from gradscope.probe.structure.graph import Graph
from gradscope.probe.structure.plan import Plan
from gradscope.probe.structure.sites import Site
from gradscope.probe.structure.stations import Station


@dataclass
class Structure:
    """What one step's graph says about a network.

    Attributes:
        sites: The residual additions and concatenations, in execution order.
        stations: The stream, from the input to the loss.
        roles: Attention roles of parameters (query, key, value, query_key_value, output) by first name.
        takes_part: First names of the parameters that the losses are computed from.
        confessions: What could not be seen, and why.
        signature: Equal for steps whose graphs are the same.
        plans: What to listen to for each site.
        graph: The graph of the step that was analysed, until `release`.
        skeleton: The signature of its skeleton, None where more than that has to be looked at to know it again.
        nodes: The autograd nodes of the step under way by their number in the graph that was analysed.
        num_repeated: How many later steps in a row had the same graph; None once one had another.
        in_skeleton: Where in the skeleton the nodes are, by number, that later steps are listened to at.
    """

    sites: list[Site]
    stations: list[Station]
    roles: dict[str, str]
    takes_part: frozenset[str]
    confessions: list[tuple[str, str]]
    signature: int
    plans: list[Plan | None] = field(default_factory=list)
    graph: Graph | None = None
    skeleton: int | None = None
    nodes: dict[int, Any] = field(default_factory=dict)
    num_repeated: int | None = 0
    in_skeleton: dict[int, int] = field(default_factory=dict)

    @property
    def settled(self) -> bool:
        """Whether later steps can be taken to have the same graph: only that it is so has to be checked."""
        return self.skeleton is not None and bool(self.num_repeated)

    @property
    def known(self) -> frozenset[Key]:
        """The additions whose norms later steps have to take."""
        return frozenset(site.key for site in self.sites if site.key is not None)

    @property
    def calls(self) -> set[tuple[str, int]]:
        """The calls, by module and number, that the sites and the stream belong to."""
        places: list[Site | Station] = [*self.sites, *self.stations]
        return {(place.call.module, place.call.call) for place in places if place.call is not None}

    @property
    def num_residual(self) -> int:
        """Number of residual additions one forward executes."""
        return sum(site.counted for site in self.sites)

    def rows_in(self, first: Structure) -> tuple[list[int | None], list[int | None]]:
        """Return which rows of an earlier structure's tables this one's sites and stations are."""
        sites = {site.key: row for row, site in enumerate(first.sites) if site.key is not None}
        stations = {(station.name, station.kind): row for row, station in enumerate(first.stations)}
        return (
            [sites.get(site.key) if site.key is not None else None for site in self.sites],
            [stations.get((station.name, station.kind)) for station in self.stations],
        )

    def release(self) -> None:
        """Let go of the graph and with it of all autograd nodes."""
        self.graph = None
        self.nodes = {}
        for site in self.sites:
            site.forget()
        for station in self.stations:
            station.node = None
