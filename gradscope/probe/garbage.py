"""Python does not search the heap for garbage because of all the small objects that we make."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG_OBJECTS = 500_000
"""Objects between two searches for garbage. Ours are a hundred for each call of a module, alive until the step ends: at
Python's 700 a model of 5,000 modules is searched hundreds of times, which took half of the step, at 50,000 a fifth."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let Python search for garbage less often."""
    youngest, *older = gc.get_threshold()
    if not 0 < youngest < _YOUNG_OBJECTS:
        yield
        return
    gc.set_threshold(_YOUNG_OBJECTS, *older)
    try:
        yield
    finally:
        if gc.get_threshold()[0] == _YOUNG_OBJECTS:
            gc.set_threshold(youngest, *older)
