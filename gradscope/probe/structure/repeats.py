"""What re-entrant activation checkpointing runs again inside the backward: there the gradients of its additions pass.

The forward of a checkpointed segment builds no graph; its additions are found among traces. The backward runs the
segment again, with a graph, and goes through that graph in a pass of its own. Right before that pass the additions are
looked for in the second run's graph as well, matched to the first's in the order in which they ran, and listened to.
"""

from __future__ import annotations

import torch

from gradscope.probe.structure.additions import AdditionRecorder
from gradscope.probe.structure.dominance import Dominators
from gradscope.probe.structure.flows import Flows
from gradscope.probe.structure.graph import Graph
from gradscope.probe.structure.operations import CHECKPOINT, operation
from gradscope.probe.structure.places import Places
from gradscope.probe.structure.plan import Plan, plan_of
from gradscope.probe.structure.residual import find_residuals
from gradscope.probe.structure.scripted import FUSED
from gradscope.probe.structure.structure import Structure
from gradscope.probe.structure.trace import Trace, ran_since
from gradscope.probe.structure.traversal import walk

_Plans = dict[int, list[Plan | None]]
"""By the node of a sum, one for each of its branches, in the order in which the sums ran."""


class Repeats:
    """Listen to the additions of checkpointed segments as the backward pass of one step repeats them.

    Args:
        structure: The structure of the step.
        recorder: What saw its forward.
        flows: Where to listen.

    Attributes:
        recorder: The mode to be on while the backward pass runs.
    """

    def __init__(self, structure: Structure, recorder: AdditionRecorder, flows: Flows) -> None:
        self.recorder = AdditionRecorder(recorder.calls, known=frozenset(), repeats=True)
        self._structure = structure
        self._flows = flows
        self._first_notes = recorder.notes
        self._sites: dict[Trace, list[int]] = {}
        for number, site in enumerate(structure.sites):
            trace = structure.nodes[site.node]
            if isinstance(trace, Trace) and trace.twin is None:
                self._sites.setdefault(trace, []).append(number)
        self._stations = {
            structure.nodes[station.tensor[0]]: number
            for number, station in enumerate(structure.stations)
            if station.node is None
        }
        carriers = structure.graph.carriers.values() if structure.graph is not None else ()
        self._functions = sorted({operation(node.name()) for node, _ in carriers} - {CHECKPOINT, FUSED})
        self._known: dict[int, _Plans] = {}
        self._measured: set[int] = set()
        self._seen: set[int] = set()

    def listen(self, roots: tuple[torch.Tensor, ...]) -> None:
        """Listen to a pass that begins inside of the step's own, where it goes through a repeated segment.

        Args:
            roots: The tensors that the inner pass starts from.
        """
        node = torch._C._current_autograd_node()
        if node is None or operation(node.name()) != CHECKPOINT:
            return
        notes, since = self.recorder.notes, node._sequence_nr()
        notes.splice(list(roots))
        splices = {**self._first_notes.splices, **notes.splices}  # checkpoints inside of checkpoints
        outputs = [trace for (sequence, _), trace in splices.items() if sequence == since]
        inside = ran_since(outputs, since)
        first = [trace for trace in inside if trace in self._sites]
        ends = [notes.source(root.grad_fn, root.output_nr) for root in roots if root.grad_fn is not None]
        graph = walk(ends, notes.hidden, notes.splices, notes.in_views)
        self._listen_at_stations(graph, inside)
        graph.ends = [graph.index[end] for end in ends]
        again = self._plans(graph) if first else {}
        if [(t.name, t.shape) for t in first] != [(graph.names[n], graph.shape((n, 0))) for n in again]:
            return
        nodes = dict(enumerate(graph.nodes))
        for trace, (number, plans) in zip(first, again.items(), strict=True):
            if isinstance(nodes[number], Trace):
                self._sites[nodes[number]] = self._sites[trace]
            for site, plan in zip(self._sites[trace], plans, strict=False):
                if plan is not None:
                    self._flows.listen_to(site, nodes, plan)
                    self._measured.update([site] if plan.branch and plan.skip is not None else ())

    def _listen_at_stations(self, graph: Graph, inside: list[Trace]) -> None:
        """Find stations inside of a segment again: among the operations of a kind and shape by their number."""
        for trace in [trace for trace in inside if trace in self._stations]:
            kind = (trace.name, trace.shape)
            before = [other for other in inside if (other.name, other.shape) == kind]
            after = [n for n, name in enumerate(graph.names) if (name, graph.shape((n, 0))) == kind]
            if len(before) == len(after):
                station, node = self._stations[trace], graph.nodes[after[before.index(trace)]]
                if isinstance(node, Trace):
                    self._stations[node] = station
                else:
                    self._flows.listen_at(station, node, 0)
                    self._seen.add(station)

    def missed(self) -> tuple[list[str], list[str], list[str]]:
        """Return the additions and stations whose gradients were not caught, at the end, and what hid them, by name."""
        numbers = {number for numbers in self._sites.values() for number in numbers}
        sites = [self._structure.sites[number] for number in sorted(numbers - self._measured)]
        stations = [self._structure.stations[number] for number in sorted({*self._stations.values()} - self._seen)]
        return [site.name for site in sites if site.alive], [station.name for station in stations], self._functions

    def _plans(self, graph: Graph) -> _Plans:
        """Find out what to listen to; blocks that are alike are analysed once."""
        signature = hash((tuple(graph.names), tuple(map(tuple, graph.inputs))))
        if signature not in self._known:
            found, _ = find_residuals(graph, self.recorder, Places(graph, ()))
            dominators = Dominators(graph, graph.ends)
            self._known[signature] = {
                node: [plan_of(graph, residual, dominators) for residual in found[node]] for node in sorted(found)
            }
        return self._known[signature]
