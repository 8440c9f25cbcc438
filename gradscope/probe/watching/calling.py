"""`nn.Module.__call__` while somebody looks on: a function that tells of the call and then does what the original does.

Compared with hooks on every module this adds no stack frame to deeply nested models, leaves nothing in any module,
does not switch off the fast paths that ask for hooks, and pairs the beginning and end of a call even when it raises.
Modules made or exchanged during the forward are seen as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import torch
from torch import nn

from gradscope.probe.watching.aside import Aside
from gradscope.probe.watching.fused import may_fuse


class Onlooker(Protocol):
    """Someone told of every call; what `enter` returns is handed to whichever of the others follows."""

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run before the forward; None where the call is of no interest."""

    def leave(self, call: Any, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Run after it."""

    def leave_unseen(self, call: Any) -> None:
        """Run after it, before `leave`, where torch functions inside of it could not be seen."""

    def abandon(self, call: Any) -> None:
        """Run where it raised."""


_active: tuple[Onlooker, ...] = ()
_sentinels: tuple[Callable[[nn.Module], None], ...] = ()
_original_call: Callable[..., Any] = nn.Module.__call__


def inform(sentinel: Callable[[nn.Module], None]) -> None:
    """Have a function told of every module that is about to be called, before any onlooker is."""
    global _sentinels  # noqa: PLW0603 - the class of all modules is global state as well
    _install()
    _sentinels = (*_sentinels, sentinel)


def dismiss(sentinel: Callable[[nn.Module], None]) -> None:
    """Stop telling a function of calls."""
    global _sentinels  # noqa: PLW0603
    _sentinels = tuple(other for other in _sentinels if other != sentinel)
    _uninstall()


def activate(onlooker: Onlooker) -> None:
    """Tell an onlooker of calls from now on."""
    global _active  # noqa: PLW0603
    _install()
    _active = (*_active, onlooker)


def deactivate(onlooker: Onlooker) -> None:
    """Stop telling an onlooker."""
    global _active  # noqa: PLW0603
    _active = tuple(other for other in _active if other is not onlooker)
    _uninstall()


@contextmanager
def alone() -> Iterator[None]:
    """Have nobody look on who does so now: for calls that are not part of what they watch."""
    global _active, _sentinels
    kept, (_active, _sentinels) = (_active, _sentinels), ((), ())
    try:
        yield
    finally:
        if any(kept):
            _install()
        _active, _sentinels = kept


def forget_everything() -> None:
    """Stop looking on, for good: in a process that was forked off."""
    global _active, _sentinels
    _active, _sentinels = (), ()
    _uninstall()


def _install() -> None:
    global _original_call  # noqa: PLW0603
    if not _active and not _sentinels and nn.Module.__call__ is not _watched_call:
        _original_call = nn.Module.__call__
        nn.Module.__call__ = _watched_call  # type: ignore[method-assign]


def _uninstall() -> None:
    # Where somebody has wrapped ours in the meantime it stays underneath: without onlookers it only passes on.
    if not _active and not _sentinels and nn.Module.__call__ is _watched_call:
        nn.Module.__call__ = _original_call  # type: ignore[method-assign]


_STOCK_CALL: Callable[..., Any] = nn.Module._wrapped_call_impl
"""`nn.Module.__call__` as torch has it, that nobody has wrapped."""


def _inform(module: nn.Module) -> None:
    with Aside():  # what they ask of parameters is no business of a mode of the user's
        for sentinel in _sentinels:
            sentinel(module)


def _watched_call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    if torch._C._get_tracing_state() is not None:  # `torch.jit.trace` would record what we ask of tensors
        return _original_call(self, *args, **kwargs)
    if _sentinels:
        _inform(self)
    if not _active:
        return _original_call(self, *args, **kwargs)
    opened: list[tuple[Onlooker, Any]] = []
    with Aside():
        for onlooker in _active:
            call = onlooker.enter(self, args, kwargs)
            if call is not None:
                opened.append((onlooker, call))
    # Straight to the eager implementation: one frame less, and a compiled module runs eagerly while watched.
    run: Callable[..., Any] = self._call_impl if _original_call is _STOCK_CALL else partial(_original_call, self)
    unseen = may_fuse(self, args, kwargs)
    try:
        if unseen:
            with torch._C.DisableTorchFunction():
                output = run(*args, **kwargs)
        else:
            output = run(*args, **kwargs)
    except BaseException:
        for onlooker, call in reversed(opened):
            onlooker.abandon(call)
        raise
    if opened:
        with Aside():
            for onlooker, call in reversed(opened):
                if unseen:
                    onlooker.leave_unseen(call)
                onlooker.leave(call, self, args, output)
    return output
