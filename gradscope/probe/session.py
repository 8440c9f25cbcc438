"""The watched steps of one model, from the first hook to the tables of its recording."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from gradscope.probe.attach import StepWatch
from gradscope.probe.faults.births import Birth
from gradscope.probe.garbage import undisturbed
from gradscope.probe.listing import named_modules
from gradscope.probe.readout import (
    times,
    write_calls,
    write_parameters,
    write_signals,
    write_stream,
    write_structure,
)
from gradscope.probe.settings import Level
from gradscope.probe.signals.hub import Signals
from gradscope.probe.signals.jacobian import StreamEnd
from gradscope.probe.signals.observer import Addition, StepContext, first_tensor
from gradscope.probe.signals.passes import Passes
from gradscope.probe.structure.faint_rows import row_weights
from gradscope.probe.structure.structure import Structure
from gradscope.probe.watching.calls import Call, CallTracker, Listener
from gradscope.probe.watching.eager import compiled_modules, eagerly
from gradscope.probe.watching.roles import role_of
from gradscope.probe.watching.rows import Handle, Rows
from gradscope.probe.watching.tables import Tables
from gradscope.probe.watching.updates import Updates


@dataclass(frozen=True)
class Outcome:
    """What about a step calls for a closer look.

    Attributes:
        finite: Whether loss and gradients are numbers.
        starved: Parameters that require a gradient and got none.
        silent: Parameters whose gradient was exactly zero in the first two watched steps; told after the second.
        kept: Whether gradients of an earlier step were there before the backward pass, in a loop that is not ours.
        in_loss: Where the step became non-finite after the model had returned, in a loop that is not ours.
    """

    finite: bool
    starved: list[str]
    silent: list[str] = field(default_factory=list)
    kept: bool = False
    in_loss: list[Birth] = field(default_factory=list)


class Session:
    """Watch some steps of a model and fill the tables of a recording.

    Args:
        model: The model.
        level: params, default or deep.
        root: The folder source files are shown relative to.
        guest: The steps are taken by code that is not ours.
    """

    def __init__(self, model: nn.Module, level: Level, root: Path, *, guest: bool = False) -> None:
        self.model = model
        self.root = root
        self._guest = guest
        self.tables = Tables(root)
        self._level = level
        self.tracker = CallTracker(model)
        roles = {name: role_of(module) for name, module in named_modules(model)}
        self._signals = None if level == "params" else Signals(model, level, roles)
        self._called: set[str] = set()
        self._silent: set[int] | None = None
        self._structure: Structure | None = None
        self._is_new = True
        """Whether the structure is not written down yet."""
        self._stations: frozenset[tuple[str, int]] | None = None

    @contextmanager
    def step(self, number: int) -> Iterator[StepWatch]:
        """Watch one step. What it saw is queued for `record` when the context ends without an exception."""
        if self._signals is not None:
            self._signals.begin(number, self._stations)
        watch = StepWatch(
            self.model, self.tracker, Rows(), self._level, self._signals, self._structure, guest=self._guest
        )
        with watch:
            yield watch
            if self._signals is not None:
                self._signals.finish(self._context(watch))
            if self._structure is None and watch.stream is not None:
                self._structure = watch.stream.structure

    @undisturbed()
    def record(
        self, number: int, watch: StepWatch, updates: Updates | None, lr: float | None, loss: Handle | None = None
    ) -> Outcome:
        """Bring a watched step's numbers over and write them down.

        Args:
            number: Which step it was.
            watch: What watched it.
            updates: What the optimizer did to the weights, None where it took no step.
            lr: The learning rate of that step.
            loss: Where the loss is among the numbers; None for what the backward pass started from.

        Returns:
            What about the step calls for a closer look.
        """
        numbers = watch.rows.read()

        def value(handle: Handle | None) -> float | None:
            return None if handle is None else numbers[handle]

        scale = value(watch.loss_scale)
        inverse = 1.0 / scale if scale else 1.0
        if not self.tables.knows_parameters(watch.parameters.names):
            self.tables.describe_parameters(self.model)
        write_calls(self.tables, number, watch, value, inverse)
        if watch.stream is not None and watch.stream.structure is not None:
            assert self._structure is not None
            if watch.stream.structure is self._structure and self._is_new:
                write_structure(self.tables, number, watch.stream.structure)
                self._is_new = False
            write_stream(self.tables, number, watch, self._structure, value, inverse)
        norm = write_parameters(self.tables, number, watch, updates, value, inverse)
        started_from = value(watch.roots[0]) if watch.roots else None
        self.tables.add(
            "steps", step=number, loss=times(started_from, inverse) if loss is None else value(loss), grad_norm=norm,
            loss_scale=scale, lr=lr,
        )  # fmt: skip
        if self._signals is not None:
            write_signals(self.tables, number, *self._signals.read())
        self._called.update(call.module for call in watch.tracker.calls)
        self._confess(number, watch)
        self.tracker.reset()
        left_over = watch.evidence.left_over if watch.evidence is not None else None
        outcome = replace(self._outcome(number), kept=any(value(handle) for handle in left_over or ()))
        if outcome.finite or watch.evidence is None:
            return outcome
        return replace(outcome, in_loss=watch.evidence.loss.births(value))

    def _context(self, watch: StepWatch) -> StepContext:
        """Tell the signals what the graph of the step has shown."""
        structure = watch.stream.structure if watch.stream is not None else None
        scale = None if watch.loss_scale is not None else 1.0
        if structure is None:
            return StepContext(loss_scale=scale)
        calls = [station.call for station in structure.stations if station.call is not None]
        self._stations = frozenset((call.module, call.call) for call in calls)
        additions = [
            Addition(id(site.addition), site.name, 0, site.positions[0], site.depth)
            for site in structure.sites
            if site.addition is not None and site.counted and site.positions[0] in (0, 1)
        ]
        return StepContext(self._stations, additions, scale)

    def _outcome(self, number: int) -> Outcome:
        stats = self.tables.of_step("parameter_stats", number, ("parameter", "grad_norm"))
        names, wanted = (self.tables.columns["parameters"][column] for column in ("name", "requires_grad"))
        shared = self.tables.columns["parameters"]["shared_with"]
        starved = [names[p] for p, norm in stats if norm is None and wanted[p] and shared[p] is None]
        zero = {p for p, norm in stats if norm == 0.0 and wanted[p]}
        silent = [names[p] for p in sorted(zero & self._silent)] if self._silent is not None else []
        self._silent = zero if self._silent is None else set()
        numbers = [norm for _, norm in stats]
        numbers += [loss for (loss,) in self.tables.of_step("steps", number, ("loss",))]
        for forward, gradient in self.tables.of_step("call_stats", number, ("forward_norm", "grad_norm")):
            # An infinite output may be meant, as that of a mask is; a NaN never is.
            numbers += [gradient, forward if forward is not None and math.isnan(forward) else None]
        return Outcome(all(x is None or math.isfinite(x) for x in numbers), starved, silent)

    @property
    def has_fused_attention(self) -> bool:
        """Whether the graph shows an attention of which one weight makes several of query, key and value."""
        return self._structure is not None and "query_key_value" in self._structure.roles.values()

    def find_ends(self, forward: Callable[[], Any]) -> tuple[StreamEnd, StreamEnd] | None:
        """Run a forward and return the two ends of its stream, None where no stream is known."""
        structure = self._structure
        stations = [station.call for station in structure.stations if station.call is not None] if structure else []
        if len(stations) < 2:  # noqa: PLR2004 - a start and an end
            return None
        ends: dict[tuple[str, int], StreamEnd] = {}
        wanted = {(call.module, call.call) for call in (stations[0], stations[-1])}

        def left(call: Call, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if (call.module, call.call) in wanted:
                tensor = first_tensor(output)
                if tensor is not None and tensor.requires_grad:
                    ends[call.module, call.call] = StreamEnd.of(tensor, row_weights(tensor.detach()))

        tracker = CallTracker(self.model)
        tracker.listeners.append(Listener(left=left))
        with eagerly(self.model), tracker:
            forward()
        found = [ends.get((call.module, call.call)) for call in (stations[0], stations[-1])]
        return (found[0], found[1]) if found[0] is not None and found[1] is not None else None

    def add_passes(self, number: int, found: Passes) -> None:
        """Write down what measurements with passes of their own have found."""
        write_signals(self.tables, number, found.observations, [])
        for what, why in found.confessions:
            self.tables.confess(what, why)

    def describe(self) -> None:
        """Write the tables that describe the model."""
        self.tables.describe_parameters(self.model)
        self.tables.describe_modules(self.model, self._called)
        if self._signals is not None:
            for name, why in self._signals.failures.items():
                self.tables.confess(name, why)

    def _confess(self, number: int, watch: StepWatch) -> None:
        if watch.stream is not None and watch.stream.lost:
            self.tables.confess(f"residual additions at step {number}", "its graph is not that of the steps before")
        for reason, count in watch.rows.unseen.items():
            self.tables.confess(f"norms of {count} tensors", reason)
        names = compiled_modules(self.model)
        if names:
            self.tables.confess(
                f"the compiled form of {', '.join(names[:3])}", "torch.compile was switched off for the watched steps"
            )
