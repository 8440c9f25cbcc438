"""What re-entrant activation checkpointing runs again inside the backward: there the gradients of its additions pass.

The forward of a checkpointed segment builds no graph; its additions are found among traces. The backward runs the
segment again, with a graph, and goes through that graph in a pass of its own. Right before that pass the additions are
looked for in the second run's graph as well, matched to the first's in the order in which they ran, and listened to.
"""

from __future__ import annotations

from typing import Any

import torch

from gradscope.probe.structure.additions import AdditionRecorder
from gradscope.probe.structure.dominance import Dominators
from gradscope.probe.structure.flows import Flows
from gradscope.probe.structure.graph import Graph
from gradscope.probe.structure.operations import CHECKPOINT, operation
from gradscope.probe.structure.places import Places
from gradscope.probe.structure.plan import Plan, plan_of
from gradscope.probe.structure.residual import find_residuals
from gradscope.probe.structure.structure import Structure
from gradscope.probe.structure.trace import Trace
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
        self._known: dict[int, _Plans] = {}
        self._measured: set[int] = set()

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
        first = [trace for trace in _inside(outputs, since) if trace in self._sites]
        ends = [notes.source(root.grad_fn, root.output_nr) for root in roots if root.grad_fn is not None]
        graph = walk(ends, notes.hidden, notes.splices, notes.in_views)
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

    def missed(self) -> list[str]:
        """Return the names of the checkpointed additions whose gradients were not all caught, once the pass is over."""
        numbers = {number for numbers in self._sites.values() for number in numbers}
        sites = [self._structure.sites[number] for number in sorted(numbers - self._measured)]
        return [site.name for site in sites if site.alive]

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


def _inside(outputs: list[Trace], since: int) -> list[Trace]:
    """Return what a segment ran, in order; `since` is the sequence number of the segment's own node."""
    waiting, seen = list(outputs), set(outputs)
    while waiting:
        inputs: list[Any] = [item for item in waiting.pop().inputs if isinstance(item, Trace)]
        inside = {trace for trace in inputs if trace.sequence > since}
        waiting += inside - seen
        seen |= inside
    return sorted(seen, key=lambda trace: trace.sequence)
