"""Optimizer steps, `zero_grad` and skipped steps of code that is not ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle


class OptimizerListener:
    """Someone told of what optimizers do; every method may be left as it is."""

    def stepping(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to step."""

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has stepped."""

    def cleared(self, owner: torch.optim.Optimizer | nn.Module) -> None:
        """`zero_grad` is about to be called on an optimizer or a module."""

    def scaled(self) -> None:
        """A GradScaler is about to update its scale: whatever step there was to take was taken, or skipped."""


_listeners: tuple[OptimizerListener, ...] = ()
_inside: list[torch.optim.Optimizer] = []
_handles: list[RemovableHandle] = []
_clearing: tuple[OptimizerListener, ...] = ()
_methods: tuple[tuple[Any, str], ...] = (
    (torch.optim.Optimizer, "zero_grad"), (nn.Module, "zero_grad"), (GradScaler, "update"),
)  # fmt: skip
_originals: list[Callable[..., Any]] = []


def listen(listener: OptimizerListener) -> None:
    """Tell a listener of the steps of every optimizer, through torch's own hooks."""
    global _listeners  # noqa: PLW0603 - the hooks of all optimizers are global state as well
    if not _listeners:
        _handles.append(register_optimizer_step_pre_hook(_before))
        _handles.append(register_optimizer_step_post_hook(_after))
    _listeners = (*_listeners, listener)


def forget(listener: OptimizerListener) -> None:
    """Stop telling a listener of steps."""
    global _listeners  # noqa: PLW0603
    _listeners = tuple(other for other in _listeners if other is not listener)
    if not _listeners:
        for handle in _handles:
            handle.remove()
        _handles.clear()
        _inside.clear()


def stepping_now() -> tuple[torch.optim.Optimizer, ...]:
    """Return the optimizers in whose step the program is, as when a closure is evaluated."""
    return tuple(_inside)


def listen_closely(listener: OptimizerListener) -> None:
    """Tell a listener of `zero_grad` and of GradScaler updates as well."""
    global _clearing  # noqa: PLW0603
    if not _clearing:
        _originals[:] = [getattr(kind, name) for kind, name in _methods]
        for (kind, name), original in zip(_methods, _originals, strict=True):
            setattr(kind, name, _told_before(original, name))
    _clearing = (*_clearing, listener)


def forget_closely(listener: OptimizerListener) -> None:
    """Stop telling a listener of `zero_grad`."""
    global _clearing  # noqa: PLW0603
    if listener not in _clearing:
        return
    _clearing = tuple(other for other in _clearing if other is not listener)
    if not _clearing:
        for (kind, name), original in zip(_methods, _originals, strict=True):
            setattr(kind, name, original)


def _before(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    _inside[:] = [other for other in _inside if other is not optimizer] + [optimizer]
    for listener in _listeners:
        listener.stepping(optimizer)


def _after(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    _inside[:] = [other for other in _inside if other is not optimizer]
    for listener in _listeners:
        listener.stepped(optimizer)


def _told_before(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        for listener in _clearing:
            if name == "update":
                listener.scaled()
            else:
                listener.cleared(self)
        return original(self, *args, **kwargs)

    return told
