"""The moments at which gradients are switched off: `no_grad`, `inference_mode`, `set_grad_enabled(False)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.autograd.grad_mode import inference_mode, no_grad, set_grad_enabled

_METHODS: tuple[tuple[Any, str], ...] = (
    (no_grad, "__enter__"), (inference_mode, "__enter__"), (set_grad_enabled, "__init__"),
)  # fmt: skip
_listeners: tuple[Callable[[], None], ...] = ()
_originals: list[Callable[..., Any]] = []


@contextmanager
def told_of_switches(listener: Callable[[], None]) -> Iterator[None]:
    """Tell a listener whenever gradients are about to be switched off."""
    global _listeners  # noqa: PLW0603 - these classes are global state as well
    if not _listeners:
        _originals[:] = [getattr(kind, method) for kind, method in _METHODS]
        for (kind, method), original in zip(_METHODS, _originals, strict=True):
            setattr(kind, method, _telling(original, asks=kind is set_grad_enabled))
    _listeners = (*_listeners, listener)
    try:
        yield
    finally:
        _listeners = tuple(other for other in _listeners if other != listener)
        if not _listeners:
            for (kind, method), original in zip(_METHODS, _originals, strict=True):
                setattr(kind, method, original)


def _telling(original: Callable[..., Any], *, asks: bool) -> Callable[..., Any]:
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not asks or not (args[0] if args else kwargs["mode"]):
            for listener in _listeners:
                listener()
        return original(self, *args, **kwargs)

    return told
