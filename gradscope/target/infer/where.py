"""Where in the code a trial failed, and whether that is further than where another did."""

from __future__ import annotations

import traceback
from types import CodeType

Lines = tuple[tuple[CodeType, int], ...]
"""The functions that an error came out of, the outermost first, each with the line it had come to."""


def lines_of(error: BaseException) -> Lines:
    """Return the lines of every function that an error went through."""
    return tuple((frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__))


def is_later(now: Lines, before: Lines) -> bool:
    """Whether two errors parted in a function that had come to a later line the second time."""
    parted = ((one, other) for one, other in zip(now, before, strict=False) if one != other)
    (code, line), (code_before, line_before) = next(parted, ((None, 0), (None, 0)))
    return code is code_before and line > line_before
