"""The moment a backward pass starts and ends, also in code that knows nothing of us."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch


class Backward(NamedTuple):
    """One backward pass.

    Attributes:
        roots: The tensors it starts from.
        accumulates: Whether it fills `.grad` (`backward()`), or returns gradients (`autograd.grad`).
        retains: Whether the graph may be used again.
        creates_graph: Whether gradients of the gradients are wanted: a penalty, not the training step itself.
        inputs: What `autograd.grad` differentiates with respect to.
    """

    roots: tuple[torch.Tensor, ...]
    accumulates: bool
    retains: bool
    creates_graph: bool
    inputs: tuple[Any, ...]


class BackwardListener:
    """Someone told of every outermost backward pass; what `started` returns is handed to `ended`."""

    def started(self, backward: Backward) -> Any:
        """Run before the first node; the graph is still whole."""

    def nested(self, _roots: tuple[torch.Tensor, ...]) -> AbstractContextManager[Any]:
        """Return what to be in during a pass that begins inside of another one (re-entrant checkpointing)."""
        return nullcontext()

    def ended(self, token: Any, result: Any) -> None:
        """Run after the last node, also when the pass raised (`result` is None then)."""


_engine: Any = torch.autograd
_listeners: tuple[BackwardListener, ...] = ()
_original: Callable[..., Any] = _engine._engine_run_backward


def listen(listener: BackwardListener) -> None:
    """Tell a listener of backward passes from now on."""
    global _listeners, _original  # noqa: PLW0603 - the autograd engine is global state as well
    if not _listeners and _engine._engine_run_backward is not _run:
        _original = _engine._engine_run_backward
        _engine._engine_run_backward = _run
    _listeners = (*_listeners, listener)


def forget(listener: BackwardListener) -> None:
    """Stop telling a listener."""
    global _listeners  # noqa: PLW0603
    _listeners = tuple(other for other in _listeners if other is not listener)
    if not _listeners and _engine._engine_run_backward is _run:
        _engine._engine_run_backward = _original


@contextmanager
def alone() -> Iterator[None]:
    """Have nobody look on who does so now."""
    global _listeners  # noqa: PLW0603
    kept, _listeners = _listeners, ()
    try:
        yield
    finally:
        _listeners = kept


def _run(roots: Any, *args: Any, **kwargs: Any) -> Any:
    """Stand in for the one function through which `backward()` and `grad()` enter the engine."""
    if torch._C._current_graph_task_id() != -1:
        with ExitStack() as stack:
            for listener in _listeners:
                stack.enter_context(listener.nested(tuple(root for root in roots if isinstance(root, torch.Tensor))))
            return _original(roots, *args, **kwargs)
    backward = _describe(roots, args, kwargs)
    tokens = [(listener, listener.started(backward)) for listener in _listeners]
    result = None
    try:
        result = _original(roots, *args, **kwargs)
    finally:
        for listener, token in tokens:
            listener.ended(token, result)
    return result


def _describe(roots: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Backward:
    # Called as (roots, grad_tensors, keep_graph, create_graph, inputs, allow_unreachable, accumulate_grad=...).
    keep, create, inputs = args[1], args[2], args[3]
    return Backward(
        tuple(root for root in roots if isinstance(root, torch.Tensor)),
        bool(kwargs.get("accumulate_grad", False)),
        bool(keep),
        bool(create),
        tuple(inputs) if inputs else (),
    )
