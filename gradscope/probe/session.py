"""The watched steps of one model, from the first hook to the tables of its recording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import nn

from gradscope.probe.attach import StepWatch
from gradscope.probe.calls import CallTracker
from gradscope.probe.eager import compiled_modules
from gradscope.probe.readout import times, write_calls, write_parameters, write_signals
from gradscope.probe.roles import role_of
from gradscope.probe.rows import Handle, Rows
from gradscope.probe.settings import Level
from gradscope.probe.signals.hub import Signals
from gradscope.probe.signals.observer import StepContext
from gradscope.probe.tables import Tables
from gradscope.probe.updates import Updates


class Session:
    """Watch some steps of a model and fill the tables of a recording.

    Args:
        model: The model.
        level: params, default or deep.
        root: The folder source files are shown relative to.
    """

    def __init__(self, model: nn.Module, level: Level, root: Path) -> None:
        self.model = model
        self.tables = Tables(root)
        self._level = level
        self._tracker = CallTracker(model)
        roles = {name: role_of(module) for name, module in model.named_modules()}
        self._signals = None if level == "params" else Signals(model, level, roles)
        self._called: set[str] = set()

    @contextmanager
    def step(self, number: int) -> Iterator[StepWatch]:
        """Watch one step. What it saw is queued for `record` when the context ends without an exception."""
        if self._signals is not None:
            self._signals.begin(number)
        watch = StepWatch(self.model, self._tracker, Rows(), self._level, self._signals)
        with watch:
            yield watch
            if self._signals is not None:
                self._signals.parameters(watch.parameters.gradients())
                self._signals.finish(StepContext())

    def record(
        self, number: int, watch: StepWatch, updates: Updates | None, lr: float | None, loss: Handle | None = None
    ) -> None:
        """Bring a watched step's numbers over and write them down.

        Args:
            number: Which step it was.
            watch: What watched it.
            updates: What the optimizer did to the weights, None where it took no step.
            lr: The learning rate of that step.
            loss: Where the loss is among the numbers; None for what the backward pass started from.
        """
        numbers = watch.rows.read()

        def value(handle: Handle | None) -> float | None:
            return None if handle is None else numbers[handle]

        scale = value(watch.loss_scale)
        inverse = 1.0 / scale if scale else 1.0
        self.tables.describe_parameters(self.model)
        write_calls(self.tables, number, watch, value, inverse)
        norm = write_parameters(self.tables, number, watch, updates, value, inverse)
        started_from = value(watch.roots[0]) if watch.roots else None
        self.tables.add(
            "steps", step=number, loss=times(started_from, inverse) if loss is None else value(loss), grad_norm=norm,
            loss_scale=scale, lr=lr,
        )  # fmt: skip
        if self._signals is not None:
            write_signals(self.tables, number, *self._signals.read())
        self._called.update(call.module for call in watch.tracker.calls)
        self._confess(watch)
        self._tracker.reset()

    def close(self) -> None:
        """Write the tables that describe the model."""
        self.tables.describe_parameters(self.model)
        self.tables.describe_modules(self.model, self._called)
        if self._signals is not None:
            for name, why in self._signals.failures.items():
                self.tables.confess(name, why)

    def _confess(self, watch: StepWatch) -> None:
        for reason, count in watch.rows.unseen.items():
            self.tables.confess(f"norms of {count} tensors", reason)
        names = compiled_modules(self.model)
        if names:
            self.tables.confess(
                f"the compiled form of {', '.join(names[:3])}", "torch.compile was switched off for the watched steps"
            )
