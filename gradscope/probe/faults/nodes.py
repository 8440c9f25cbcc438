"""Where the nodes of an autograd graph were made: in which module call, on which line of the user's code."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from gradscope.probe.watching.calls import Call, CallTracker, Listener
from gradscope.probe.watching.source import is_user_file

_TRACEBACK_LINE = re.compile(r'File "(?P<file>.+?)", line (?P<line>\d+)')


class Intervals:
    """Which autograd nodes were made in which call: nodes are numbered in the order in which they are made.

    Args:
        tracker: Tells of the calls; it is listened to from here on.
    """

    def __init__(self, tracker: CallTracker) -> None:
        self._starts: list[int] = []
        self._calls: list[Call | None] = []
        tracker.listeners.append(Listener(self._entered, self._left))

    def call_of(self, node: Any) -> Call | None:
        """Return the innermost call in which a node was made."""
        index = bisect_right(self._starts, node._sequence_nr()) - 1
        return self._calls[index] if index >= 0 else None

    def _entered(self, call: Call, module: nn.Module) -> None:
        self._mark(call)

    def _left(self, call: Call, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self._mark(call.parent)

    def _mark(self, call: Call | None) -> None:
        self._starts.append(torch._C._autograd._get_sequence_nr())
        self._calls.append(call)


@contextmanager
def remembered_lines() -> Iterator[None]:
    """Let every graph node that is made remember where it was made."""
    enabled, checking = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    torch.autograd.set_detect_anomaly(True, check_nan=False)
    try:
        yield
    finally:
        torch.autograd.set_detect_anomaly(enabled, check_nan=checking)


def line_of(node: Any) -> tuple[str | None, int | None]:
    """Return the user's file and line that made a node, as far as it remembers."""
    for entry in reversed(node.metadata.get("traceback_", [])):
        found = _TRACEBACK_LINE.search(entry)
        if found and is_user_file(found["file"]):
            return found["file"], int(found["line"])
    return None, None


def operation_of(node: Any) -> str:
    """Return a node's operation, without what tells its variants apart."""
    return re.sub(r"Backward\d*$", "", node.name().rpartition("::")[2])
