"""Take a few optimizer steps with a subject, watch some of them, and leave everything as it was."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from gradscope.errors import GradscopeError, LossError
from gradscope.probe.attach import StepWatch
from gradscope.probe.balance import attention_gradients
from gradscope.probe.closer import note_births, note_cuts, note_seeds, note_zeros
from gradscope.probe.faults.failures import cut_error, loss_error, told
from gradscope.probe.faults.placing import device_for, dtype_for, endless, place, place_model
from gradscope.probe.interrupted import MeasurementInterrupted
from gradscope.probe.listing import named_parameters
from gradscope.probe.origin import provenance_of
from gradscope.probe.restore import ModelState, Moment, RandomState
from gradscope.probe.seeding import seed_everything
from gradscope.probe.session import Outcome, Session
from gradscope.probe.settings import ProbeSettings
from gradscope.probe.signals.passes import Passes, measure_passes
from gradscope.probe.stale import Renewal, StaleGraphError, stale_graphs
from gradscope.probe.uncompiled import take_step
from gradscope.probe.watching import optimizers
from gradscope.probe.watching.dense import readable
from gradscope.probe.watching.eager import eagerly
from gradscope.probe.watching.tensors import shapes_in
from gradscope.probe.watching.updates import Updates, steps_in_backward
from gradscope.record import Recording

if TYPE_CHECKING:
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
        self.weights: dict[str, torch.Tensor] | None = None
        """Before the last watched step."""
        self.renewal: Renewal
        self.moment: Moment
        """Before the step that is being taken."""
        self.num_watched = 0
        self.num_steps = 0
        self.batch_shape = ""

    def steps(self) -> None:
        """Take all steps."""
        self._prepare()
        batches = self._batches()
        batch = next(batches)
        self.batch_shape = shapes_in(batch)
        seed_everything(self.settings.seed)
        for number in range(self.settings.num_steps):
            watched = number in self.settings.watched_steps
            self.progress("watching" if watched else "stepping", number, self.settings.num_steps)
            if number:
                batch = next(batches)
            try:
                self._take(self._watched_step if watched else self._bare_step, number, batch)
            except _EndedError as error:
                self._stop_early(number, str(error))
                break
            finally:
                self.num_steps = number + 1

    def _take(self, step: Callable[[int, Any], None], number: int, batch: Any) -> None:
        """Take a step, and once more where something that is kept from step to step broke it."""
        self.renewal.renew()
        self.moment = Moment(self.model)
        try:
            step(number, batch)
        except StaleGraphError as error:
            assert self.session is not None
            if not self.renewal.repeat(error, self.moment, self.session.tables, number):
                if not self.num_watched:
                    raise error.told from error
                raise _EndedError(f"the backward pass of step {number} raised") from error
            self._take(step, number, batch)

    def _stop_early(self, number: int, why: str) -> None:
        assert self.session is not None
        seen = self.session.tables.columns["steps"]["step"]
        to_come = range(number, self.settings.num_steps)
        missed = [step for step in self.settings.watched_steps if step in to_come and step not in seen]
        if missed:
            steps = ", ".join(map(str, missed))
            self.session.tables.confess(f"steps {steps}", why)

    def recording(self, *, partial: bool) -> Recording:
        """Return what has been measured."""
        assert self.session is not None
        self.session.describe()
        provenance = provenance_of(self.subject, self.settings, self.num_steps, self.batch_shape)
        return self.session.tables.recording(replace(provenance, partial=partial))

    def _prepare(self) -> None:
        if self.settings.mode != "keep":
            self.model.train(self.settings.mode == "train")
        for parameter in self.model.parameters():  # first, or converting the model would convert the gradients too
            parameter.grad = None
        place_model(self.model, self.device, self.dtype)
        self.session = Session(self.model, self.settings.level, self.subject.root)
        self.renewal = Renewal(self.model)

    def _batches(self) -> Iterator[Any]:
        for batch in endless(self.subject.batches):
            yield place(batch, self.device, self.dtype)

    def _watched_step(self, number: int, batch: Any) -> None:
        assert self.session is not None
        seed = torch.initial_seed()
        with self.session.step(number) as watch:
            # An optimizer that steps inside the backward leaves no later moment to look at the weights before it.
            updates = Updates(self.model, watch.rows, spare=self.weights) if steps_in_backward(self.model) else None
            with watch.forward():
                loss = self._forward(number, batch)
            drawn = torch.initial_seed()
            handle = watch.rows.keep(loss)
            self._backward(number, loss)
        del loss
        self._extra_passes(number, batch)
        updates = self._update(watch, updates)
        outcome = self.session.record(number, watch, updates, optimizers.learning_rate(self.optimizer), handle)
        self.moment.weights = self.weights = updates.before
        self.num_watched += 1
        self._look_closer(number, batch, outcome)
        if drawn != seed and self.num_watched == 1:
            note_seeds(self.session.tables, lambda: self._loss(batch), drawn, self.moment)

    def _look_closer(self, number: int, batch: Any, outcome: Outcome) -> None:
        assert self.session is not None
        tables, moment = self.session.tables, self.moment
        if not outcome.finite:
            note_births(tables, number, self.model, lambda: self._loss(batch), batch, moment)
            raise _EndedError(f"nothing is a number any more after step {number}")
        if outcome.starved and self.num_watched == 1:
            note_cuts(tables, number, self.model, lambda: self._loss(batch), outcome.starved, moment)
        if outcome.silent:
            note_zeros(tables, number, self.model, lambda: self._loss(batch), outcome.silent, moment)

    def _extra_passes(self, number: int, batch: Any) -> None:
        assert self.session is not None
        first, deep = self.num_watched == 0, self.settings.level == "deep"
        jacobian = self.settings.jacobian and self.settings.level != "params" and first
        splits = first and self.session.has_fused_attention
        if not (jacobian or deep or splits):
            return
        with self.renewal.anew():
            if jacobian or deep:
                find_ends = self.session.find_ends if jacobian else None
                found = measure_passes(
                    self.model, self.subject.call, self._loss, batch, find_ends=find_ends, deep=deep
                )
                self.session.add_passes(number, found)
            if splits:
                self._split_fused(number, batch)

    def _split_fused(self, number: int, batch: Any) -> None:
        assert self.session is not None
        found = Passes()
        found.attempt(
            "query, key and value gradients of fused weights",
            lambda: found.observations.extend(attention_gradients(self.model, self.subject.call, batch)),
        )
        self.session.add_passes(number, found)

    def _bare_step(self, number: int, batch: Any) -> None:
        assert self.session is not None
        with eagerly(self.model):  # as in the watched steps: one run, one arithmetic, and no minutes of compilation
            loss = self._forward(number, batch)
            self._backward(number, loss)
        if not _all_finite(loss, self.model):
            note_births(self.session.tables, number, self.model, lambda: self._loss(batch), batch, self.moment)
            raise _EndedError(f"nothing is a number any more after step {number}")
        if self._has_optimizer():
            take_step(self.optimizer)  # type: ignore[arg-type]

    def _loss(self, batch: Any) -> torch.Tensor:
        return self.subject.loss(self.subject.call(batch), batch)

    def _forward(self, number: int, batch: Any) -> torch.Tensor:
        try:
            loss = self._loss(batch)
        except Exception as error:
            raise told(error, f"The forward at step {number}", self.subject.root) from error
        wrong = loss_error(loss, any(parameter.requires_grad for _, parameter in named_parameters(self.model)))
        if wrong is not None:
            raise self._where_cut(wrong, loss, batch)
        return loss

    def _where_cut(self, error: LossError, loss: Any, batch: Any) -> LossError:
        """Add to the complaint about a loss without a gradient where the gradient was lost."""
        names = [name for name, parameter in self.model.named_parameters() if parameter.requires_grad]
        if not names or not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            return error
        assert self.session is not None
        cuts = note_cuts(self.session.tables, 0, self.model, lambda: self._loss(batch), names, Moment(self.model))
        return error if not cuts else cut_error(error, cuts[0], self.subject.root)

    def _backward(self, number: int, loss: torch.Tensor) -> None:
        for _, parameter in named_parameters(self.model):
            parameter.grad = None
        try:
            loss.backward()
        except Exception as error:
            problem = told(error, f"The backward at step {number}", self.subject.root)
            if kept := stale_graphs(self.moment, loss):
                raise StaleGraphError(kept, problem) from error
            raise problem from error

    def _update(self, watch: StepWatch, updates: Updates | None) -> Updates:
        updates = updates or Updates(self.model, watch.rows, changes=self._has_optimizer(), spare=self.weights)
        if self._has_optimizer():
            take_step(self.optimizer)  # type: ignore[arg-type]
            updates.after()
        return updates

    def _has_optimizer(self) -> bool:
        # Built late: lazy parameters have no shape before the first forward.
        if self.optimizer is None:
            self.optimizer = optimizers.build(
                self.settings.optimizer, self.model, self.settings.lr, self.subject.optimizer
            )
        return self.optimizer is not None


class _EndedError(Exception):
    """No step can follow: numbers that are not finite would only spread to every weight, or a backward pass raised."""


def _all_finite(loss: torch.Tensor, model: nn.Module) -> bool:
    found = [parameter.grad for _, parameter in named_parameters(model)]
    grads = [grad for grad in found if grad is not None and grad.numel() and readable(grad)]
    tensors = [loss.detach(), *grads]
    # A Euclidean norm is taken at the speed of memory, but in float32 it is infinite already where single numbers pass
    # 1e19. Only then the largest magnitude is asked for, which takes the CPU 20 times as long.
    return _are_finite(tensors, 2.0) or _are_finite(tensors, math.inf)


def _are_finite(tensors: list[torch.Tensor], order: float) -> bool:
    norms = torch._foreach_norm(tensors, ord=order)
    return bool(torch.stack([norm.to(tensors[0].device, torch.float32) for norm in norms]).isfinite().all())


def _silent(words: str, done: int, total: int) -> None:
    pass
