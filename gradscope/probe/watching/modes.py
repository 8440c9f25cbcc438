"""Torch-function modes that stay on while code of the user's runs, which may put on and take off modes of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from gradscope.probe.watching.aside import dispatch_modes_off, dispatch_modes_on

Function = Callable[..., Any]


def shielded(look: Callable[[Function], Any], func: Function) -> Any:
    """Run a mode's own look at a call so that no other mode on the stack comes to see what it asks of tensors.

    Args:
        look: Is given what to call in place of the function; the other modes do see that call.
        func: The function.
    """
    dispatch = torch._C._len_torch_dispatch_stack()
    if not (dispatch or torch._C._len_torch_function_stack()):
        return look(func)
    modes = dispatch_modes_off() if dispatch else ()

    def seen_by_others(*args: Any, **kwargs: Any) -> Any:
        dispatch_modes_on(modes)
        try:
            with torch._C._EnableTorchFunction():
                return func(*args, **kwargs)
        finally:
            if modes:
                dispatch_modes_off()

    try:
        with torch._C.DisableTorchFunction():
            return look(seen_by_others)
    finally:
        dispatch_modes_on(modes)


class OwnMode(TorchFunctionMode):
    """A mode of ours, to be told from those of the user."""


class LingeringMode(OwnMode):
    """A mode that hands calls on unseen unless it is awake."""

    def __init__(self) -> None:
        super().__init__()
        self.awake = False


class Lingering:
    """Modes that are put on at one moment of a step and taken off at another, wherever they then lie on the stack.

    Example:
        >>> class Mine(LingeringMode):
        ...     def __torch_function__(self, func, types, args=(), kwargs=None):
        ...         return func(*args, **kwargs or {})
        >>> lingering = Lingering((Mine(),))
        >>> lingering.put_on()
        >>> with torch.device("meta"):
        ...     lingering.take_off()
        ...     torch.zeros(1).device.type
        'meta'
    """

    def __init__(self, modes: tuple[LingeringMode, ...]) -> None:
        self._modes = modes

    def put_on(self) -> None:
        """Put the modes on; nothing where a mode of the user's is on, that may be taken off before ours are."""
        others = [mode for mode in _stack() if mode not in self._modes and not _is_default_device(mode)]
        if any(not isinstance(mode, LingeringMode) for mode in others):
            return
        for mode in self._modes:
            if mode not in _stack():
                torch._C._push_on_torch_function_stack(mode)
            mode.awake = True

    def rest(self) -> None:
        """Leave the modes where they are, unseeing: one that hands on a call just now cannot be taken off."""
        for mode in self._modes:
            mode.awake = False

    def take_off(self) -> None:
        """Take the modes off."""
        self.rest()
        stack = _stack()
        if any(mode in stack for mode in self._modes):
            _restack([mode for mode in stack if mode not in self._modes])


@contextmanager
def without_modes() -> Iterator[None]:
    """Take every mode off but for the default device, and put them on again."""
    stack = _stack()
    _restack([mode for mode in stack if _is_default_device(mode)])
    try:
        yield
    finally:
        _restack(stack)


def _stack() -> list[Any]:
    return [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]


def _restack(modes: list[Any]) -> None:
    while torch._C._len_torch_function_stack():
        torch._C._pop_torch_function_stack()
    for mode in modes:
        torch._C._push_on_torch_function_stack(mode)


def _is_default_device(mode: Any) -> bool:
    # That of `set_default_device` keeps to the bottom of the stack by itself; `with torch.device(...)` pops the top.
    return mode is getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
