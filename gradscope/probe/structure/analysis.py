"""Find the structure of a network in the graph behind one step's losses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from gradscope.probe.listing import named_modules
from gradscope.probe.structure.additions import AdditionRecorder
from gradscope.probe.structure.attention import roles_of
from gradscope.probe.structure.backbone import find_stations
from gradscope.probe.structure.chain import factors_in
from gradscope.probe.structure.confessions import Unseen, confessions
from gradscope.probe.structure.dominance import Dominators
from gradscope.probe.structure.flows import Flows
from gradscope.probe.structure.functions import CONCATENATIONS
from gradscope.probe.structure.graph import Graph
from gradscope.probe.structure.operations import Effect
from gradscope.probe.structure.places import Places
from gradscope.probe.structure.plan import plan_of
from gradscope.probe.structure.recurrence import mark_recurrent
from gradscope.probe.structure.renewal import remember, renewed, renewed_in_full
from gradscope.probe.structure.residual import find_residuals
from gradscope.probe.structure.scripted import FUSED
from gradscope.probe.structure.sites import describe
from gradscope.probe.structure.skeleton import skeleton_of
from gradscope.probe.structure.stations import Network
from gradscope.probe.structure.structure import Structure
from gradscope.probe.structure.trace import Trace
from gradscope.probe.structure.traversal import walk
from gradscope.probe.watching.rows import Rows


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
    # Equal blocks make equal graphs, whichever of them a step runs: the same calls have to be in it as well.
    again = previous is not None and previous.calls <= {(call.module, call.call) for call in recorder.calls.calls}
    if previous is not None and again and previous.skeleton == skeleton.signature:
        return renewed(previous, skeleton, recorder)
    if previous is not None:
        previous.num_repeated = None
    if recorder.quick:
        return None
    notes = recorder.notes
    sources = [notes.source(root.grad_fn, root.output_nr) for root in roots if root.grad_fn is not None]
    sources += [notes.source(edge.node, edge.output_nr) for call in recorder.calls.calls for edge in call.outputs]
    graph = walk(sources, notes.hidden, notes.splices, notes.in_views)
    # A scripted child that TorchScript has come to run as one is made of traces with the names of its operations.
    traced = tuple([isinstance(node, Trace) for node in graph.nodes])
    signature = hash((tuple(graph.names), tuple(map(tuple, graph.inputs)), traced))
    if previous is not None and again and previous.skeleton is None and previous.signature == signature:
        return renewed_in_full(previous, graph, recorder)
    graph.ends = [graph.index[loss] for loss in sources[: len(losses)]]
    structure = _analysed(graph, recorder, model, signature)
    remember(structure, graph, skeleton, hides=bool(notes.splices))
    return structure


def _analysed(graph: Graph, recorder: AdditionRecorder, model: nn.Module, signature: int) -> Structure:
    """Analyse a graph whose losses are known, from its residual sites to what is listened to."""
    parameters = {id(parameter): name for name, parameter in model.named_parameters()}
    dominators = Dominators(graph, graph.ends)
    places = Places(graph, recorder.spans)
    found, gave_up = find_residuals(graph, recorder, places)
    sites = describe(graph, places, found, recorder, factors_in(graph, recorder.notes.factors), parameters)
    mark_recurrent(graph, sites, recorder.additions.values())
    for site in sites:
        site.alive = dominators.reaches(site.node)
    parents = {name for name, module in named_modules(model) if _has_parts(module)}
    stations = find_stations(Network(graph, places, sites, parents, parameters), dominators)
    plans = [
        plan_of(graph, site.residual, dominators) if site.alive and site.residual is not None else None
        for site in sites
    ]
    unseen = Unseen(recorder.fused, _unseen_scripts(graph, places, recorder), _unused(graph, recorder))
    return Structure(
        sites=sites,
        stations=stations,
        roles=roles_of(graph, model),
        takes_part=_parameters(graph, dominators, parameters),
        confessions=confessions(graph, gave_up, sites, plans, unseen),
        signature=signature,
        plans=plans,
        graph=graph,
    )


def _unseen_scripts(graph: Graph, places: Places, recorder: AdditionRecorder) -> list[str]:
    """The modules in which TorchScript ran operations as one that nobody could look into."""
    calls = [places.owner(node) for node, name in enumerate(graph.names) if name == FUSED]
    unseen = [call for call in calls if call not in recorder.notes.looked_into]
    return list(dict.fromkeys((call.module if call is not None else "") or "the model" for call in unseen))


def _unused(graph: Graph, recorder: AdditionRecorder) -> list[str]:
    """Where the model adds two tensors of the size of a stream, and nothing that leads to a loss is made of the sum."""
    reached = frozenset(graph.sequences)
    lost = [
        one for key, one in recorder.additions.items() if isinstance(key, int) and key not in reached and one.terms
    ]
    names = [
        f"{one.call.module or 'the model'} (line {one.line})"
        for one in lost
        if one.call is not None and one.op not in CONCATENATIONS
    ]
    return list(dict.fromkeys(names))


def _has_parts(module: nn.Module) -> bool:
    """Tell whether modules inside of one handle data: those that only make its weights (weight norm) do not."""
    return any(name != "parametrizations" or not is_parametrized(module) for name, _ in module.named_children())


def attach(structure: Structure, rows: Rows) -> Flows:
    """Listen to the gradients of a structure that was just analysed, until `Flows.remove` is called."""
    assert structure.nodes or not structure.stations, "the structure's graph was released"
    stations = [(station.node, station.output_nr) for station in structure.stations]
    return Flows(structure.nodes, structure.plans, stations, rows, _start_weights(structure))


def _start_weights(structure: Structure) -> torch.Tensor | None:
    """Return the weights of the rows with which the stream starts: those of its first addition's skip."""
    if not structure.stations or structure.stations[0].kind != "start":
        return None
    first = next((site for site in structure.sites if site.depth is not None), None)
    if first is None or first.addition is None:
        return None
    return dict(enumerate(first.addition.weights)).get(first.positions[0])


def _parameters(graph: Graph, dominators: Dominators, names: Mapping[int, str]) -> frozenset[str]:
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
