"""The gradient that reaches the stream through the skip, and through the branch, of every residual addition.

Through the branch: the sum of the gradients that the branch's own readers of the stream send back to it. Through the
skip: what the last operation of the skip sends back. Both are caught as the backward pass computes them, so that they
are exact, whoever else reads the stream. Nothing is kept longer than from the sum to the branch's first operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from gradscope.probe.structure.plan import Plan
from gradscope.probe.watching.aside import Aside
from gradscope.probe.watching.rows import Handle, Rows

Gradients = tuple[torch.Tensor | None, ...]


class SiteFlow:
    """The gradients of one site; handles of rows, None where no gradient arrived.

    Attributes:
        apart: Skip and branch begin at different parts of the stream.
        grad: Norm of the gradient with respect to the sum.
        skip: Norm of the gradient that reaches the stream through the skip.
        branch: Norm of the gradient that reaches the stream through the branch.
        dot: Inner product of those two.
    """

    __slots__ = (
        "_branch", "_carried", "_rows", "_skip", "_sum", "_total", "_waiting", "apart", "branch", "dot", "grad",
        "has_plan", "has_skip", "keep", "num_readers", "shared", "skip",
    )  # fmt: skip

    def __init__(
        self,
        rows: Rows,
        num_readers: int,
        *,
        has_skip: bool = False,
        shared: tuple[tuple[Any, int], ...] = (),
        apart: bool = False,
    ) -> None:
        self._rows = rows
        self.num_readers = num_readers
        self.has_skip = has_skip
        self.shared = shared
        self.apart = apart
        self.keep = False
        self.has_plan = False
        self.grad: Handle | None = None
        self.skip: Handle | None = None
        self.branch: Handle | None = None
        self.dot: Handle | None = None
        self._sum: torch.Tensor | None = None
        self._skip: torch.Tensor | None = None
        self._branch: torch.Tensor | None = None
        self._total: torch.Tensor | None = None
        self._waiting = num_readers
        self._carried = not shared

    def summed(self, gradient: torch.Tensor) -> None:
        """Take the gradient with respect to the sum."""
        gradient = _plus(self._sum, gradient) if self.keep else gradient
        self.grad = self._rows.norm(gradient)
        self._sum = gradient

    def skipped(self, gradient: torch.Tensor) -> None:
        """Take what the skip sends back to the stream."""
        same = self._sum is not None and _same(gradient, self._sum)
        gradient = _plus(self._skip, gradient) if self.keep else gradient
        self.skip = self._rows.same(gradient, self.grad) if same else self._rows.norm(gradient)
        self._skip = gradient
        if not self.keep:
            self._sum = None
        self._settle()

    def branched(self, gradient: torch.Tensor | None) -> None:
        """Take what one reader of the branch sends back to the stream."""
        if gradient is not None:
            self._branch = _plus(self._branch, gradient if self.shared else _wide(gradient))
        self._waiting -= 1
        self._settle()

    def carry(self) -> None:
        """Send the branch's gradient through the operations that it shares with others, before these run for all."""
        gradient = self._branch
        for node, position in self.shared:
            if gradient is not None:
                sent = node(gradient, *(None,) * (len(node._input_metadata) - 1))
                gradient = sent[position] if isinstance(sent, tuple) else sent
        self._branch = gradient
        self._carried = True
        self._settle()

    def finish(self) -> None:
        """Measure what the branch has sent back, and let go of the tensors."""
        if self._branch is not None:
            branch = _plus(self._total, _wide(self._branch)) if self.keep else _wide(self._branch)
            self.branch = self._rows.norm(branch)
            if self._skip is not None and self._skip.shape == branch.shape and not self.apart:
                self.dot = self._rows.dot(_wide(self._skip), branch)
            self._total = branch
        self._branch = None
        self._waiting = self.num_readers
        self._carried = not self.shared
        if not self.keep:
            self.release()

    def release(self) -> None:
        """Let go of every tensor."""
        self._sum = self._skip = self._branch = self._total = None

    def _settle(self) -> None:
        """Finish where both sides are there. A skip that is scaled may send its gradient after the branch has."""
        if self._waiting <= 0 and self._carried and (self._skip is not None or not self.has_skip):
            self.finish()


class Flows:
    """Listen to the gradients of some sites and stations during the backward passes of one step.

    Args:
        nodes: The autograd nodes, by the numbers that the plans use.
        plans: What to listen to for each site; None for sites without a graph.
        stations: Node and output number of each station; no node where there is none yet (checkpointing).
        rows: Where the numbers go.
        start_weights: Weights of the rows of the first station (see `faint_rows`).
    """

    def __init__(
        self,
        nodes: Mapping[int, Any],
        plans: Sequence[Plan | None],
        stations: Sequence[tuple[Any, int]],
        rows: Rows,
        start_weights: torch.Tensor | None = None,
    ) -> None:
        self.sites: list[SiteFlow] = []
        self.stations: list[Handle | None] = [None] * len(stations)
        self.weighted_start: Handle | None = None
        """Norm of the gradient at the first station with its rows weighted."""
        self.listening = True
        """Whether the gradients that pass now are those of the training step."""
        self._rows = rows
        self._start_weights = start_weights
        self._hooks: list[RemovableHandle] = []
        self._kept: dict[int, torch.Tensor] = {}
        self._keep = False
        for number, plan in enumerate(plans):
            self.sites.append(SiteFlow(rows, 0))
            if plan is not None:
                self.listen_to(number, nodes, plan)
        for number, (node, output_nr) in enumerate(stations):
            if node is not None:
                self.listen_at(number, node, output_nr)

    def keep(self, keep: bool) -> None:
        """Say whether the graph will be gone through again, so that gradients must be kept to be added up."""
        self._keep = keep
        for flow in self.sites:
            flow.keep = keep

    def listen_to(self, number: int, nodes: Mapping[int, Any], plan: Plan) -> None:
        """Listen to the gradients of a site.

        Args:
            number: The site's number.
            nodes: The autograd nodes, by the numbers that the plan uses.
            plan: What to listen to.
        """
        shared = tuple((nodes[node], position) for node, position in plan.shared)
        flow = self.sites[number]
        if flow.has_plan:  # the same operations have run once more
            flow.shared = shared
        else:
            flow = SiteFlow(
                self._rows, len(plan.branch), has_skip=plan.skip is not None, shared=shared, apart=plan.apart
            )
            flow.keep, flow.has_plan = self._keep, True
            self.sites[number] = flow
        self._attach(nodes, plan, flow)

    def listen_at(self, number: int, node: Any, output_nr: int) -> None:
        """Listen to the gradient at a station.

        Args:
            number: The station's number.
            node: The autograd node that makes it.
            output_nr: Which output of that node it is.
        """
        self._hooks.append(node.register_prehook(self._at_station(number, output_nr)))

    def finish(self) -> None:
        """Measure what is left after a backward pass that did not come to every reader."""
        with torch.no_grad(), Aside():
            for flow in self.sites:
                flow.finish()

    def remove(self) -> None:
        """Take off every hook and let go of every tensor."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._kept.clear()
        self._start_weights = None
        for flow in self.sites:
            flow.release()
            flow.shared = ()

    def _attach(self, nodes: Mapping[int, Any], plan: Plan, flow: SiteFlow) -> None:
        self._hooks.append(nodes[plan.node].register_prehook(self._incoming(flow.summed)))
        if plan.skip is not None:
            node, position = plan.skip
            self._hooks.append(nodes[node].register_hook(self._outgoing(position, flow.skipped)))
        if flow.shared:
            self._hooks.append(flow.shared[0][0].register_prehook(self._before(flow.carry)))
        for node, position in plan.branch:
            self._hooks.append(nodes[node].register_hook(self._outgoing(position, flow.branched, empty=True)))

    def _incoming(self, take: Callable[[torch.Tensor], None]) -> Callable[[Gradients], None]:
        def hook(gradients: Gradients) -> None:
            if self.listening and gradients[0] is not None:
                with Aside():
                    take(gradients[0].detach())

        return hook

    def _before(self, take: Callable[[], None]) -> Callable[[Gradients], None]:
        def hook(_: Gradients) -> None:
            if self.listening:
                with torch.no_grad(), Aside():
                    take()

        return hook

    def _outgoing(
        self, position: int, take: Callable[[Any], None], *, empty: bool = False
    ) -> Callable[[Gradients, Gradients], None]:
        def hook(gradients: Gradients, _: Gradients) -> None:
            if not self.listening:
                return
            gradient = gradients[position] if position < len(gradients) else None
            if gradient is not None or empty:
                with Aside():
                    take(None if gradient is None else gradient.detach())

        return hook

    def _at_station(self, number: int, output_nr: int) -> Callable[[Gradients], None]:
        def hook(gradients: Gradients) -> None:
            gradient = gradients[output_nr] if output_nr < len(gradients) else None
            if self.listening and gradient is not None:
                with Aside():
                    self._take_station(number, gradient.detach())

        return hook

    def _take_station(self, number: int, gradient: torch.Tensor) -> None:
        if self._keep:
            gradient = self._kept[number] = _plus(self._kept.get(number), gradient)
        self.stations[number] = self._rows.norm(gradient)
        weights = self._start_weights
        if number == 0 and weights is not None and weights.shape[:-1] == gradient.shape[:-1]:
            self.weighted_start = self._rows.norm(gradient * weights)


def _plus(total: torch.Tensor | None, gradient: torch.Tensor) -> torch.Tensor:
    return gradient if total is None else total + gradient


def _wide(gradient: torch.Tensor) -> torch.Tensor:
    """Return a gradient in at least single precision: partial gradients are about to be added up."""
    return gradient.float() if gradient.dtype in {torch.float16, torch.bfloat16} else gradient


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one is other:
        return True
    strided = one.layout is torch.strided and other.layout is torch.strided
    return (
        strided and one.shape == other.shape and one.stride() == other.stride() and one.data_ptr() == other.data_ptr()
    )
