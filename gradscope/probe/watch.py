"""`gradscope.watch(model)`: a context around any training loop that records every so many steps of it."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import TracebackType
from typing import get_args

from torch import nn

from gradscope.probe.follow import Follower
from gradscope.probe.origin import provenance_of_loop
from gradscope.probe.session import Session
from gradscope.probe.settings import Level
from gradscope.record import Recording


class Scope:
    """What `watch` gives: a context whose recording grows as the loop inside runs.

    Attributes:
        model: The watched model.
        follower: What follows its steps.
    """

    def __init__(self, model: nn.Module, every: int, level: Level, root: Path, target: str) -> None:
        self.model = model
        self._target = target
        self._session = Session(model, level, root, guest=True)
        self.follower = Follower(self._session, lambda number: number % every == 0)

    def __enter__(self) -> Scope:
        self.follower.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.follower.stop()

    @property
    def recording(self) -> Recording:
        """What has been measured so far; complete after the context has ended."""
        self._session.describe()
        return self._session.tables.recording(provenance_of_loop(self._session, self.follower, self._target))


def watch(model: nn.Module, every: int = 100, *, level: Level = "default", root: Path | None = None) -> Scope:
    """Watch every so many optimizer steps of a training loop.

    Losses and gradients stay bitwise what they were; on steps that are not watched nothing is attached to the model.

    Args:
        model: The model that the loop trains.
        every: Watch steps 0, every, 2 x every, ...
        level: params, default or deep.
        root: The folder source files are shown relative to; the current one by default.

    Raises:
        TypeError: `model` is no module.
        ValueError: `every` or `level` is out of range.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> with watch(model, every=2) as scope:
        ...     for _ in range(3):
        ...         optimizer.zero_grad()
        ...         model(torch.ones(4, 2)).square().mean().backward()
        ...         optimizer.step()
        >>> scope.recording.watched_steps
        [0, 2]
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"watch takes an nn.Module, not a {type(model).__name__}")
    if every < 1:
        raise ValueError(f"every={every}: it has to be at least 1")
    if level not in get_args(Level):
        raise ValueError(f"level={level!r}: it has to be one of {', '.join(get_args(Level))}")
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    name = Path(caller.f_code.co_filename).name if caller is not None else "a loop"
    return Scope(model, every, level, root or Path.cwd(), name)
