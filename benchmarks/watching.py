"""The ways of taking one step that are compared: plain, and watched at each level."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import torch

from benchmarks.workloads import Task
from gradscope import watch
from gradscope.probe.session import Session
from gradscope.probe.settings import Level
from gradscope.probe.watching import optimizing

Step = Callable[[], None]

_NEVER_AGAIN = 1_000_000
"""Steps of which the first alone is watched."""


def plain_step(task: Task) -> Step:
    """Forward and backward, as everybody writes them."""

    def step() -> None:
        task.model.zero_grad(set_to_none=True)
        task.loss().backward()

    return step


def watched_step(task: Task, level: Level) -> Step:
    """The same step with everything of a level measured, read and written into the tables."""
    session, numbers = Session(task.model, level, Path.cwd()), count()

    def step() -> None:
        number = next(numbers)
        task.model.zero_grad(set_to_none=True)
        with session.step(number) as watch:
            with watch.forward():
                value = task.loss()
            handle = watch.rows.keep(value)
            value.backward()
        session.record(number, watch, None, None, handle)

    return step


def sampled_steps(task: Task, every: int) -> Step:
    """`every` steps of a training loop under `gradscope.watch`, of which it watches one."""
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.0)

    def steps() -> None:
        with watch(task.model, every=every):
            _train(task, optimizer, every)

    return steps


@contextmanager
def watched_loop(task: Task) -> Iterator[Step]:
    """Give a further step, each time, of a training loop under `gradscope.watch` that watches all of them."""
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.0)
    with watch(task.model, every=1):
        _train(task, optimizer, 2)
        yield lambda: _train(task, optimizer, 1)


@contextmanager
def unwatched_loop(task: Task, num_steps: int) -> Iterator[tuple[Step, Step]]:
    """Give further steps, so many each time, of a loop under `gradscope.watch` that watches the first step alone.

    The first of the two takes them without us: with torch's optimizer hooks taken off, all that is attached then.
    """
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.0)
    with watch(task.model, every=_NEVER_AGAIN) as scope:
        _train(task, optimizer, 2)

        def bare() -> None:
            optimizing.forget(scope.follower)
            _train(task, optimizer, num_steps)
            optimizing.listen(scope.follower)

        yield bare, lambda: _train(task, optimizer, num_steps)


def bare_steps(task: Task, every: int) -> Step:
    """The same training loop without us."""
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.0)
    return lambda: _train(task, optimizer, every)


def _train(task: Task, optimizer: torch.optim.Optimizer, num_steps: int) -> None:
    for _ in range(num_steps):
        task.model.zero_grad(set_to_none=True)
        task.loss().backward()
        optimizer.step()
