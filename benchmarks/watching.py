"""The ways of taking one step that are compared: plain, and watched at each level."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import torch
from torch import nn

from gradscope.probe.session import Session
from gradscope.probe.settings import Level

Step = Callable[[], None]


def plain_step(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Step:
    """Forward and backward, as everybody writes them."""

    def step() -> None:
        model.zero_grad(set_to_none=True)
        loss().backward()

    return step


def watched_step(model: nn.Module, loss: Callable[[], torch.Tensor], level: Level) -> Step:
    """The same step with everything of a level measured, read and written into the tables."""
    session, numbers = Session(model, level, Path.cwd()), count()

    def step() -> None:
        number = next(numbers)
        model.zero_grad(set_to_none=True)
        with session.step(number) as watch:
            with watch.forward():
                value = loss()
            handle = watch.rows.keep(value)
            value.backward()
        session.record(number, watch, None, None, handle)

    return step


def sampled_steps(model: nn.Module, loss: Callable[[], torch.Tensor], every: int) -> Step:
    """`every` steps of a training loop under `gradscope.watch`, of which it watches one."""
    from gradscope import watch

    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def steps() -> None:
        with watch(model, every=every):
            _train(model, loss, optimizer, every)

    return steps


def bare_steps(model: nn.Module, loss: Callable[[], torch.Tensor], every: int) -> Step:
    """The same training loop without us."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    return lambda: _train(model, loss, optimizer, every)


def _train(
    model: nn.Module, loss: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer, num_steps: int
) -> None:
    for _ in range(num_steps):
        model.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()
