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
from gradscope.probe.structure.graph import Graph
from gradscope.probe.structure.operations import Effect
from gradscope.probe.structure.places import Places, Span
from gradscope.probe.structure.plan import Plan, plan_of
from gradscope.probe.structure.recurrence import mark_recurrent
from gradscope.probe.structure.residual import find_residuals
from gradscope.probe.structure.sites import Site, describe
from gradscope.probe.structure.skeleton import Skeleton, skeleton_of
from gradscope.probe.structure.traversal import walk
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
        plans: What to listen to for each site.
        graph: The graph of the step that was analysed, until `release`.
        skeleton: The signature of its skeleton, None where more than that has to be looked at to know it again.
        nodes: The autograd nodes of the step under way by their number in the graph that was analysed.
        num_repeated: How many later steps in a row had the same graph; None once one had another.
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
    _numbers: dict[int, int] = field(default_factory=dict)
    """Where in the skeleton the nodes are that later steps are listened to at."""

    @property
    def settled(self) -> bool:
        """Whether later steps can be taken to have the same graph: only that it is so has to be checked."""
        return self.skeleton is not None and bool(self.num_repeated)

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
        self.nodes = {}
        for site in self.sites:
            site.forget()
        for station in self.stations:
            station.node = None


def analyse(
    roots: Iterable[torch.Tensor], recorder: AdditionRecorder, model: nn.Module, previous: Structure | None = None
) -> Structure | None:
    """Analyse the graph behind the losses of one step, before its backward pass.

    Args:
        roots: The losses.
        recorder: What saw the forward.
        model: The model.
        previous: The structure of an earlier step: where the graph is the same, its analysis is used again.

    Returns:
        The structure; None where the recorder was quick, but the graph is another one.
    """
    losses = [root.grad_fn for root in roots if root.grad_fn is not None]
    returned = [edge.node for call in recorder.calls.calls for edge in call.outputs]
    skeleton = skeleton_of([*losses, *returned])
    if previous is not None and previous.skeleton == skeleton.signature:
        return _again(previous, skeleton, recorder)
    if previous is not None:
        previous.num_repeated = None
    if recorder.quick:
        return None
    notes = recorder.notes
    graph = walk([*losses, *returned], notes.hidden, notes.splices, notes.in_views)
    signature = hash((tuple(graph.names), tuple(map(tuple, graph.inputs))))
    if previous is not None and previous.skeleton is None and previous.signature == signature:
        return _again_in_full(previous, graph, recorder)
    ends = graph.ends = [graph.index[loss] for loss in losses]
    dominators = Dominators(graph, ends)
    places = Places(graph, recorder.spans)
    found, gave_up = find_residuals(graph, recorder, places)
    factors = recorder.notes.factors
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
    structure = Structure(
        sites=sites,
        stations=stations,
        roles=roles_of(graph, model),
        takes_part=_parameters(graph, dominators, model),
        confessions=confessions(graph, gave_up, sites, plans, recorder.fused),
        signature=signature,
        plans=plans,
        graph=graph,
    )
    _remember(structure, graph, skeleton, hides=bool(notes.splices))
    return structure


def _remember(structure: Structure, graph: Graph, skeleton: Skeleton, *, hides: bool) -> None:
    """Note where the nodes that are listened to are in the skeleton, if they all are."""
    numbers = {node: number for number, node in enumerate(skeleton.nodes)}
    places = [place for plan in structure.plans if plan is not None for place in plan.places]
    wanted = {*places, *(station.tensor[0] for station in structure.stations), *(s.node for s in structure.sites)}
    structure.nodes = {number: graph.nodes[number] for number in wanted}
    structure._numbers = {place: numbers[node] for place, node in structure.nodes.items() if node in numbers}
    if not hides and len(structure._numbers) == len(wanted):
        structure.skeleton = skeleton.signature


def attach(structure: Structure, rows: Rows) -> Flows:
    """Listen to the gradients of a structure that was just analysed, until `Flows.remove` is called."""
    assert structure.nodes or not structure.stations, "the structure's graph was released"
    stations = [(station.node, station.output_nr) for station in structure.stations]
    return Flows(structure.nodes, structure.plans, stations, rows)


def _again(structure: Structure, skeleton: Skeleton, recorder: AdditionRecorder) -> Structure:
    """Use a structure for another step, whose graph has the same skeleton."""
    structure.nodes = {place: skeleton.nodes[number] for place, number in structure._numbers.items()}
    for site in structure.sites:
        addition = recorder.by_key.get(site.key) if site.key is not None else None
        site.addition = addition if addition is not None else site.addition
    for station in structure.stations:
        station.node, station.output_nr = structure.nodes[station.tensor[0]], station.tensor[1]
    return _repeated(structure, recorder)


def _again_in_full(structure: Structure, graph: Graph, recorder: AdditionRecorder) -> Structure:
    """Use a structure for another step, where parts of the graph are known from notes only."""
    structure.graph = graph
    structure.nodes = dict(enumerate(graph.nodes))
    for site in structure.sites:
        number = graph.sequences[site.node]
        addition = recorder.additions.get(int(number)) if number == int(number) else None
        site.addition = addition if addition is not None else site.addition
    for station in structure.stations:
        station.node, station.output_nr = graph.gradient_of(station.tensor) or (None, 0)
    return _repeated(structure, recorder)


def _repeated(structure: Structure, recorder: AdditionRecorder) -> Structure:
    calls = {(call.module, call.call): call for call in recorder.calls.calls}
    places: list[Site | Station] = [*structure.sites, *structure.stations]
    for place in places:
        place.call = calls.get((place.call.module, place.call.call)) if place.call is not None else None
    if structure.num_repeated is not None:
        structure.num_repeated += 1
    return structure


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
