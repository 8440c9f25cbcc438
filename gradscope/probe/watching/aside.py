"""Our own work with tensors, unseen by the modes of the user: those of torch functions, and those of its dispatcher."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch
from torch.utils._python_dispatch import _pop_mode, _push_mode


class Aside:
    """Nothing that is asked of tensors in this is seen by a mode that counts or keeps what runs.

    Example:
        >>> with Aside():
        ...     torch._C._len_torch_dispatch_stack()
        0
    """

    __slots__ = ("_functions", "_modes")

    def __enter__(self) -> Aside:
        self._functions = torch._C.DisableTorchFunction()
        self._functions.__enter__()
        self._modes = dispatch_modes_off() if torch._C._len_torch_dispatch_stack() else ()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        dispatch_modes_on(self._modes)
        self._functions.__exit__(kind, error, trace)


def dispatch_modes_off() -> tuple[Any, ...]:
    """Take off all modes of the dispatcher and return them, the innermost first."""
    return tuple([_pop_mode() for _ in range(torch._C._len_torch_dispatch_stack())])


def dispatch_modes_on(modes: tuple[Any, ...]) -> None:
    """Put modes on again that were taken off."""
    for mode in reversed(modes):
        _push_mode(mode)
