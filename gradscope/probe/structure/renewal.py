"""The structure of an earlier step, used again for a step whose graph is the same."""

from __future__ import annotations

from gradscope.probe.structure.additions import AdditionRecorder
from gradscope.probe.structure.graph import Graph
from gradscope.probe.structure.sites import Site
from gradscope.probe.structure.skeleton import Skeleton
from gradscope.probe.structure.stations import Station
from gradscope.probe.structure.structure import Structure
from gradscope.probe.structure.trace import Trace


def remember(structure: Structure, graph: Graph, skeleton: Skeleton, *, hides: bool) -> None:
    """Note where the nodes that are listened to are in the skeleton, if they all are."""
    numbers = {node: number for number, node in enumerate(skeleton.nodes)}
    places = [place for plan in structure.plans if plan is not None for place in plan.places]
    wanted = {*places, *(station.tensor[0] for station in structure.stations), *(s.node for s in structure.sites)}
    nodes = graph.numbered()
    structure.nodes = {number: nodes[number] for number in wanted}
    structure.in_skeleton = {place: numbers[node] for place, node in structure.nodes.items() if node in numbers}
    if not hides and len(structure.in_skeleton) == len(wanted):
        structure.skeleton = skeleton.signature


def renewed(structure: Structure, skeleton: Skeleton, recorder: AdditionRecorder) -> Structure:
    """Use a structure for another step, whose graph has the same skeleton."""
    structure.nodes = {place: skeleton.nodes[number] for place, number in structure.in_skeleton.items()}
    for site in structure.sites:
        site.addition = recorder.by_key.get(site.key) if site.key is not None else None
    for station in structure.stations:
        station.node, station.output_nr = structure.nodes[station.tensor[0]], station.tensor[1]
    return _repeated(structure, recorder)


def renewed_in_full(structure: Structure, graph: Graph, recorder: AdditionRecorder) -> Structure:
    """Use a structure for another step, where parts of the graph are known from notes only."""
    structure.graph = graph
    structure.nodes = graph.numbered()
    for site in structure.sites:
        node = graph.nodes[site.node]
        site.addition = recorder.additions.get(node if isinstance(node, Trace) else int(graph.sequences[site.node]))
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
