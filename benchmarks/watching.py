"""The ways of taking one step that are compared: plain, and watched at each level."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import torch

from benchmarks.workloads import Task
from gradscope.probe.session import Session
from gradscope.probe.settings import Level

Step = Callable[[], None]


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
    from gradscope import watch

    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.0)

    def steps() -> None:
        with watch(task.model, every=every):
            _train(task, optimizer, every)

    return steps


def bare_steps(task: Task, every: int) -> Step:
    """The same training loop without us."""
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.0)
    return lambda: _train(task, optimizer, every)


def _train(task: Task, optimizer: torch.optim.Optimizer, num_steps: int) -> None:
    for _ in range(num_steps):
        task.model.zero_grad(set_to_none=True)
        task.loss().backward()
        optimizer.step()
