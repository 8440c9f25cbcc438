"""What re-entrant activation checkpointing runs again inside the backward: there the gradients of its additions pass.

The forward of a checkpointed segment builds no graph; its additions are found among traces. The backward runs the
segment again, with a graph, and goes through that graph in a pass of its own. Right before that pass the additions are
looked for in the second run's graph as well, matched to the first's in the order in which they ran, and listened to:
where they are as many, of the same kind, shape and source line, and made with the same parameters.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

import torch

from gradscope.probe.structure.additions import AdditionRecorder
from gradscope.probe.structure.dominance import Dominators
from gradscope.probe.structure.flows import Flows
from gradscope.probe.structure.graph import Graph
from gradscope.probe.structure.operations import CHECKPOINT
from gradscope.probe.structure.places import Places
from gradscope.probe.structure.plan import Plan, plan_of
from gradscope.probe.structure.residual import find_residuals
from gradscope.probe.structure.structure import Structure
from gradscope.probe.structure.trace import OUTSIDE, Trace, ran_since
from gradscope.probe.structure.traversal import walk

_Signature = tuple[tuple[str, ...], tuple[tuple[tuple[int, int, int], ...], ...]]
"""The names of a graph's operations, and what each takes in."""

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
        self.recorder.notes.opened = recorder.notes.opened
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
        self._functions = sorted(recorder.notes.opened - {CHECKPOINT})
        self._known: dict[_Signature, _Plans] = {}
        self._parameters: dict[int, int] = {}
        self._measured: set[int] = set()
        self._seen: set[int] = set()

    def listen(self, roots: tuple[torch.Tensor, ...]) -> None:
        """Listen to a pass that begins inside of the step's own, where it goes through a repeated segment.

        Args:
            roots: The tensors that the inner pass starts from.
        """
        node = torch._C._current_autograd_node()
        if node is None:
            return
        notes, since = self.recorder.notes, node._sequence_nr()
        notes.splice(list(roots))
        splices = {**self._first_notes.splices, **notes.splices}  # checkpoints inside of checkpoints
        outputs = [trace for (sequence, _), trace in splices.items() if sequence == since]
        if not outputs:
            return
        inside = ran_since(outputs, since)
        first = [trace for trace in inside if trace in self._sites]
        ends = [notes.source(root.grad_fn, root.output_nr) for root in roots if root.grad_fn is not None]
        graph = walk(ends, notes.hidden, notes.splices, notes.in_views)
        before, after = self._weights_of_traces(inside), self._weights_in(graph, since)
        self._listen_at_stations(graph, inside, before, after)
        graph.ends = [graph.index[end] for end in ends]
        again = self._plans(graph) if first else {}
        found = [(*self._found_by(graph, number), after[number], len(plans)) for number, plans in again.items()]
        if [(*self._known_by(trace), before[trace], len(self._sites[trace])) for trace in first] != found:
            return
        nodes = dict(enumerate(graph.nodes))
        for trace, (number, plans) in zip(first, again.items(), strict=True):
            if isinstance(nodes[number], Trace):
                self._sites[nodes[number]] = self._sites[trace]
            for site, plan in zip(self._sites[trace], plans, strict=True):
                if plan is not None:
                    self._flows.listen_to(site, nodes, plan)
                    self._measured.update([site] if plan.branch and plan.skip is not None else ())

    def _known_by(self, trace: Trace) -> tuple[Any, ...]:
        """Return what tells an addition of the first run from others."""
        site = self._structure.sites[self._sites[trace][0]]
        return trace.name, trace.shape, site.file, site.line

    def _found_by(self, graph: Graph, number: int) -> tuple[Any, ...]:
        """Return the same of an addition of the second run."""
        node = graph.nodes[number]
        addition = self.recorder.additions.get(node if isinstance(node, Trace) else int(graph.sequences[number]))
        place = (None, None) if addition is None else (addition.file, addition.line)
        return graph.names[number], graph.shape((number, 0)), *place

    def _listen_at_stations(
        self, graph: Graph, inside: list[Trace], before: dict[Trace, int], after: list[int]
    ) -> None:
        """Find stations inside of a segment again: among operations of one kind, shape and weights by their number."""
        kinds: dict[Any, list[int]] = {}
        for node, name in enumerate(graph.names):
            kinds.setdefault((name, graph.shape((node, 0)), after[node]), []).append(node)
        same: dict[Any, list[Trace]] = {}
        for trace in inside:
            same.setdefault((trace.name, trace.shape, before[trace]), []).append(trace)
        for kind, traces in same.items():
            nodes = kinds.get(kind, [])
            for trace, number in zip(traces, nodes, strict=True) if len(traces) == len(nodes) else ():
                if trace in self._stations:
                    self._listen_at(self._stations[trace], graph.nodes[number])

    def _listen_at(self, station: int, node: Any) -> None:
        if isinstance(node, Trace):
            self._stations[node] = station
        else:
            self._flows.listen_at(station, node, 0)
            self._seen.add(station)

    def _weights_of_traces(self, inside: list[Trace]) -> dict[Trace, int]:
        """Return, as bits of a number, the parameters that each operation of the first run was computed with."""
        found: dict[Trace, int] = {}
        for trace in inside:
            bits = 0
            for item in trace.inputs:
                bits |= found.get(item, 0) if isinstance(item, Trace) else 0 if item is None else self._bit(item[0])
            found[trace] = bits
        return found

    def _weights_in(self, graph: Graph, since: int) -> list[int]:
        """Return the same of the operations of the second run; what was computed before the segment has none."""
        found: list[int] = []
        for node, edges, sequence in zip(graph.nodes, graph.inputs, graph.sequences, strict=True):
            bits = reduce(or_, [found[source] for source, _, _ in edges], self._bit(node))
            found.append(0 if OUTSIDE < sequence < since else bits)
        return found

    def _bit(self, node: Any) -> int:
        """Return the bit of the parameter that a node accumulates the gradient of, 0 for every other node."""
        variable = getattr(node, "variable", None)
        if not isinstance(variable, torch.nn.Parameter):
            return 0
        return 1 << self._parameters.setdefault(id(variable), len(self._parameters))

    def missed(self) -> tuple[list[str], list[str], list[str]]:
        """Return the additions and stations whose gradients were not caught, at the end, and what hid them, by name."""
        numbers = {number for numbers in self._sites.values() for number in numbers}
        sites = [self._structure.sites[number] for number in sorted(numbers - self._measured)]
        stations = [self._structure.stations[number] for number in sorted({*self._stations.values()} - self._seen)]
        return [site.name for site in sites if site.alive], [station.name for station in stations], self._functions

    def _plans(self, graph: Graph) -> _Plans:
        """Find out what to listen to; blocks that are alike are analysed once."""
        signature = (tuple(graph.names), tuple(map(tuple, graph.inputs)))
        if signature not in self._known:
            found, _ = find_residuals(graph, self.recorder, Places(graph, ()))
            dominators = Dominators(graph, graph.ends)
            self._known[signature] = {
                node: [plan_of(graph, residual, dominators) for residual in found[node]] for node in sorted(found)
            }
        return self._known[signature]
