"""Watch the residual structure of one step: see its forward, analyse its graph, listen to its backward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import nn

from gradscope.probe.structure.additions import AdditionRecorder
from gradscope.probe.structure.analysis import analyse, attach
from gradscope.probe.structure.confessions import of_repeats
from gradscope.probe.structure.flows import Flows
from gradscope.probe.structure.repeats import Repeats
from gradscope.probe.structure.structure import Structure
from gradscope.probe.watching.aside import Aside
from gradscope.probe.watching.calls import CallTracker
from gradscope.probe.watching.rows import Handle, Rows


class SiteNumbers(NamedTuple):
    """Handles of what was measured at one site; None where it was not."""

    skip_norm: Handle | None
    branch_norm: Handle | None
    out_norm: Handle | None
    grad_norm: Handle | None
    skip_grad_norm: Handle | None
    branch_grad_norm: Handle | None
    dot: Handle | None
    """Inner product of the gradients through skip and branch; the cosine is it over the two norms."""


class StationNumbers(NamedTuple):
    """Handles of what was measured at one station."""

    num_elements: int | None
    forward_norm: Handle | None
    """None where a call returns the station (its own numbers have it), or where it was not seen."""
    grad_norm: Handle | None


class StreamWatch:
    """Find and measure residual additions and the stream during one step.

    Use `forward` around the forward and the loss, `before_backward` with the losses right before the backward pass,
    `close` at the end, also after an exception. The structure of an earlier step is used again where the graph is the
    same.

    Example:
        >>> model, rows = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), Rows()
        >>> with CallTracker(model) as tracker:
        ...     watch = StreamWatch(model, tracker, rows)
        ...     with watch.forward():
        ...         loss = model(torch.ones(1, 2)).sum()
        ...     watch.before_backward((loss,))
        ...     loss.backward()
        ...     watch.close()
        >>> watch.structure.num_residual
        0
    """

    def __init__(self, model: nn.Module, tracker: CallTracker, rows: Rows, previous: Structure | None = None) -> None:
        self.structure: Structure | None = None
        self.flows: Flows | None = None
        self._model = model
        self._rows = rows
        self._previous = previous
        self._repeats: Repeats | None = None
        self._in_backward = ExitStack()
        self.lost = False
        """Whether the graph is not the one that it was taken to be, so that nothing can be said of this step."""
        known, settled = (None, False) if previous is None else (previous.known, previous.settled)
        self.recorder = AdditionRecorder(tracker, rows, known, quick=settled)

    @contextmanager
    def forward(self) -> Iterator[AdditionRecorder]:
        """See every addition of the forward."""
        with self.recorder:
            yield self.recorder

    def before_backward(self, roots: tuple[torch.Tensor, ...], *, retains: bool = False) -> None:
        """Analyse the graph behind the losses (once a step) and listen to its gradients.

        Args:
            roots: The losses.
            retains: The graph will be gone through again: gradients are kept, to be added up.
        """
        if self.structure is None and not self.lost:
            with Aside():
                self.structure = analyse(roots, self.recorder, self._model, self._previous)
                self.lost = self.structure is None
                self.flows = None if self.structure is None else attach(self.structure, self._rows)
        if self.flows is not None:
            self.flows.keep(retains)
            self.flows.listening = True
        if self.structure is not None and self.flows is not None and self.recorder.notes.splices:
            self._repeats = self._repeats or Repeats(self.structure, self.recorder, self.flows)
            self._in_backward.enter_context(self._repeats.recorder)

    @contextmanager
    def nested_backward(self, roots: tuple[torch.Tensor, ...]) -> Iterator[None]:
        """Listen to a pass that begins inside of the step's own, and see what it runs again.

        Args:
            roots: The tensors that it starts from.
        """
        if self._repeats is None:
            yield
            return
        with Aside():
            self._repeats.listen(roots)
        with self._repeats.recorder:  # torch takes the mode off while it runs a function that the mode has seen
            yield

    def after_backward(self) -> None:
        """Stop listening until the next backward pass, and measure what is still open."""
        self._in_backward.close()
        if self.flows is not None:
            self.flows.finish()
            self.flows.listening = False

    def close(self) -> None:
        """Take off every hook and let go of the graph; the numbers stay."""
        self._in_backward.close()
        if self.flows is not None:
            self.flows.finish()
            self.flows.remove()
        if self.structure is not None:
            if self._repeats is not None:
                self.structure.confessions += of_repeats(*self._repeats.missed())
                self._repeats = None
            self.structure.release()

    def site_numbers(self) -> list[SiteNumbers]:
        """Return the handles of every site of the structure."""
        assert self.structure is not None
        assert self.flows is not None
        found = []
        for site, flow in zip(self.structure.sites, self.flows.sites, strict=True):
            skip, branch, out = site.forward_handles()
            found.append(SiteNumbers(skip, branch, out, flow.grad, flow.skip, flow.branch, flow.dot))
        return found

    def station_numbers(self) -> list[StationNumbers]:
        """Return the handles of every station of the structure."""
        assert self.structure is not None
        assert self.flows is not None
        found = []
        for station, grad in zip(self.structure.stations, self.flows.stations, strict=True):
            site = self.structure.sites[station.site] if station.site is not None else None
            forward = site.forward_handles()[2] if site is not None and station.is_sum else None
            found.append(StationNumbers(station.num_elements, forward, grad))
        return found
