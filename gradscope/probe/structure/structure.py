"""The structure of a network, from the graph behind one step's losses: residual sites, blocks and stream."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from gradscope.probe.structure.additions import AdditionRecorder, Key
from gradscope.probe.structure.along import Network, Station
from gradscope.probe.structure.attention import roles_of
from gradscope.probe.structure.backbone import find_stations
from gradscope.probe.structure.confessions import confessions
from gradscope.probe.structure.dominance import Dominators
from gradscope.probe.structure.flows import Flows
from gradscope.probe.structure.graph import Graph, walk
from gradscope.probe.structure.operations import Effect
from gradscope.probe.structure.places import Places, Span
from gradscope.probe.structure.plan import Plan, plan_of
from gradscope.probe.structure.recurrence import mark_recurrent
from gradscope.probe.structure.residual import find_residuals
from gradscope.probe.structure.sites import Site, describe
from gradscope.probe.watching.rows import Rows


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
    """

    sites: list[Site]
    stations: list[Station]
    roles: dict[str, str]
    takes_part: frozenset[str]
    confessions: list[tuple[str, str]]
    signature: int
    plans: list[Plan | None] = field(default_factory=list)
    graph: Graph | None = None

    @property
    def known(self) -> frozenset[Key]:
        """The additions whose norms later steps have to take."""
        return frozenset(site.key for site in self.sites if site.key is not None)

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
        for site in self.sites:
            site.forget()
        for station in self.stations:
            station.node = None


def analyse(
    roots: Iterable[torch.Tensor], recorder: AdditionRecorder, model: nn.Module, previous: Structure | None = None
) -> Structure:
    """Analyse the graph behind the losses of one step, before its backward pass.

    Args:
        roots: The losses.
        recorder: What saw the forward.
        model: The model.
        previous: The structure of an earlier step: where the graph is the same, its analysis is used again.
    """
    losses = [root.grad_fn for root in roots if root.grad_fn is not None]
    returned = [edge.node for span in recorder.spans for edge in span.call.outputs]
    graph = walk([*losses, *returned], recorder.hidden, recorder.splices, recorder.in_views)
    signature = hash((tuple(graph.names), tuple(map(tuple, graph.inputs))))
    if previous is not None and previous.signature == signature:
        return _again(previous, graph, recorder)
    ends = graph.ends = [graph.index[loss] for loss in losses]
    dominators = Dominators(graph, ends)
    places = Places(graph, recorder.spans)
    found, gave_up = find_residuals(graph, recorder, places)
    factors = recorder.factors
    sites = describe(graph, places, found, recorder, lambda node: factors.get(int(graph.sequences[node])))
    mark_recurrent(graph, sites, recorder.additions.values())
    for site in sites:
        site.alive = dominators.reaches(site.node)
    parents = {name for name, module in model.named_modules() if next(module.children(), None) is not None}
    stations = find_stations(Network(graph, places, sites, parents), dominators)
    plans = [
        plan_of(graph, site.residual, dominators) if site.alive and site.residual is not None else None
        for site in sites
    ]
    return Structure(
        sites=sites,
        stations=stations,
        roles=roles_of(graph, model),
        takes_part=_parameters(graph, dominators, model),
        confessions=confessions(graph, gave_up, sites, plans, recorder.fused),
        signature=signature,
        plans=plans,
        graph=graph,
    )


def attach(structure: Structure, rows: Rows) -> Flows:
    """Listen to the gradients of a structure that was just analysed, until `Flows.remove` is called."""
    assert structure.graph is not None, "the structure's graph was released"
    stations = [(station.node, station.output_nr) for station in structure.stations]
    return Flows(structure.graph, structure.plans, stations, rows)


def _again(previous: Structure, graph: Graph, recorder: AdditionRecorder) -> Structure:
    previous.graph = graph
    for site in previous.sites:
        number = graph.sequences[site.node]
        addition = recorder.additions.get(int(number)) if number == int(number) else None
        site.addition = addition if addition is not None else site.addition
    calls = {(span.call.module, span.call.call): span.call for span in recorder.spans}
    for site in previous.sites:
        site.call = calls.get((site.call.module, site.call.call)) if site.call is not None else None
    for station in previous.stations:
        station.node, station.output_nr = graph.gradient_of(station.tensor) or (None, 0)
        station.call = calls.get((station.call.module, station.call.call)) if station.call is not None else None
    return previous


def _parameters(graph: Graph, dominators: Dominators, model: nn.Module) -> frozenset[str]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    reached = _reached(graph, dominators)
    found = set()
    for node, effect in enumerate(graph.effects):
        if effect is Effect.LEAF and node in reached:
            variable: Any = getattr(graph.nodes[node], "variable", None)
            if variable is not None and id(variable) in names:
                found.add(names[id(variable)])
    return frozenset(found)


def _reached(graph: Graph, dominators: Dominators) -> set[int]:
    """The nodes that lead to a loss, parameters included."""
    reached: set[int] = set()
    for node in range(len(graph.nodes) - 1, -1, -1):
        if node in reached or dominators.reaches(node):
            reached.add(node)
            reached.update(source for source, _, _ in graph.inputs[node])
    return reached


__all__ = ["Span", "Structure", "analyse", "attach"]
