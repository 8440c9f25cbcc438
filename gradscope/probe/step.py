"""Take a few optimizer steps with a subject, watch some of them, and leave everything as it was."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from gradscope.errors import GradscopeError
from gradscope.probe import optimizers
from gradscope.probe.attach import StepWatch
from gradscope.probe.failures import loss_error, told
from gradscope.probe.interrupted import MeasurementInterrupted
from gradscope.probe.origin import provenance_of
from gradscope.probe.placing import device_for, dtype_for, endless, place, place_model
from gradscope.probe.restore import ModelState, RandomState
from gradscope.probe.session import Session
from gradscope.probe.settings import ProbeSettings
from gradscope.probe.updates import Updates
from gradscope.record import Recording
from gradscope.target.subject import Subject

Progress = Callable[[str, int, int], None]
"""Told what is going on: (words, steps done, steps in all)."""


def measure(subject: Subject, settings: ProbeSettings, progress: Progress | None = None) -> Recording:
    """Step a subject and record what flows through it.

    Args:
        subject: The model with its batches and its loss.
        settings: How many steps, which of them are watched, where and how.
        progress: Told before every step.

    Returns:
        The recording. The model is afterwards what it was before, unless the settings keep the steps.

    Raises:
        ModelError: The user's code raised; `recording` holds what had been measured of earlier steps, or None.
        LossError: The loss is not a scalar with a gradient.
        InputsError: There are no batches.
        ConfigError: The device, dtype or optimizer does not exist.
        MeasurementInterrupted: Ctrl-C; a KeyboardInterrupt whose `recording` holds what had been measured.
    """
    optimizers.check(settings.optimizer)
    run = _Run(subject, settings, progress or _silent)
    random_state, state = RandomState(), ModelState(subject.model)
    try:
        run.steps()
    except KeyboardInterrupt as error:
        raise MeasurementInterrupted(run.recording(partial=True)) from error
    except GradscopeError as error:
        error.recording = run.recording(partial=True) if run.num_watched else None  # type: ignore[attr-defined]
        raise
    finally:
        state.restore(values=not settings.keep_steps)
        random_state.restore()
    return run.recording(partial=False)


class _Run:
    """The state of one call of `measure`."""

    def __init__(self, subject: Subject, settings: ProbeSettings, progress: Progress) -> None:
        self.subject = subject
        self.settings = settings
        self.progress = progress
        self.model = subject.model
        self.device = device_for(settings.device, subject.model)
        self.dtype = dtype_for(settings.dtype)
        self.optimizer: torch.optim.Optimizer | None = None
        self.session: Session | None = None
        self.num_watched = 0
        self.num_steps = 0
        self.batch_shape = ""

    def steps(self) -> None:
        """Take all steps."""
        self._prepare()
        batches = self._batches()
        batch = next(batches)
        if self.settings.seed is not None:
            seed_everything(self.settings.seed)
        for number in range(self.settings.num_steps):
            self.progress("watching" if number in self.settings.watched_steps else "stepping", number, self.settings.num_steps)
            if number:
                batch = next(batches)
            if number in self.settings.watched_steps:
                self._watched_step(number, batch)
            else:
                self._bare_step(number, batch)
            self.num_steps = number + 1

    def recording(self, *, partial: bool) -> Recording:
        """Return what has been measured."""
        assert self.session is not None
        self.session.close()
        provenance = provenance_of(self.subject, self.settings, self.num_steps, self.batch_shape)
        return self.session.tables.recording(replace(provenance, partial=partial))

    def _prepare(self) -> None:
        if self.settings.mode != "keep":
            self.model.train(self.settings.mode == "train")
        place_model(self.model, self.device, self.dtype)
        for parameter in self.model.parameters():
            parameter.grad = None
        self.session = Session(self.model, self.settings.level, self.subject.root)

    def _batches(self) -> Iterator[Any]:
        for batch in endless(self.subject.batches):
            yield place(batch, self.device, self.dtype)

    def _watched_step(self, number: int, batch: Any) -> None:
        assert self.session is not None
        updates: Updates | None = None
        with self.session.step(number) as watch:
            with watch.forward():
                loss = self._forward(number, batch)
            handle = watch.rows.keep(loss)
            self._backward(number, loss)
            updates = self._update(watch)
        self.session.record(number, watch, updates, optimizers.learning_rate(self.optimizer), handle)
        self.num_watched += 1

    def _bare_step(self, number: int, batch: Any) -> None:
        self._backward(number, self._forward(number, batch))
        if self._has_optimizer():
            self.optimizer.step()  # type: ignore[union-attr]

    def _forward(self, number: int, batch: Any) -> torch.Tensor:
        try:
            loss = self.subject.loss(self.subject.call(batch), batch)
        except Exception as error:
            raise told(error, f"The forward at step {number}", self.subject.root) from error
        wrong = loss_error(loss, any(parameter.requires_grad for parameter in self.model.parameters()))
        if wrong is not None:
            raise wrong
        return loss

    def _backward(self, number: int, loss: torch.Tensor) -> None:
        for parameter in self.model.parameters():
            parameter.grad = None
        try:
            loss.backward()  # type: ignore[no-untyped-call]
        except Exception as error:
            raise told(error, f"The backward at step {number}", self.subject.root) from error

    def _update(self, watch: StepWatch) -> Updates | None:
        if not self._has_optimizer():
            return None
        updates = Updates(self.model, watch.rows)
        self.optimizer.step()  # type: ignore[union-attr]
        updates.after()
        return updates

    def _has_optimizer(self) -> bool:
        # Built late: lazy parameters have no shape before the first forward.
        if self.optimizer is None:
            self.optimizer = optimizers.build(
                self.settings.optimizer, self.model, self.settings.lr, self.subject.optimizer
            )
        return self.optimizer is not None


def seed_everything(seed: int) -> None:
    """Seed torch, Python and, where it is loaded, numpy."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def _silent(words: str, done: int, total: int) -> None:
    pass
