"""Keep a target's folder on sys.path while its code runs: it may import what lies beside it only then."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


@contextmanager
def importable(folder: Path | None) -> Iterator[None]:
    """Have modules in a folder found first, as in a script that lies there; None changes nothing."""
    if folder is None or str(folder) in sys.path:
        yield
        return
    entry = str(folder)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        if entry in sys.path:
            sys.path.remove(entry)


def with_folder(function: Callable[_P, _T], folder: Path | None) -> Callable[_P, _T]:
    """Return the function, run with a folder importable."""
    if folder is None:
        return function

    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        with importable(folder):
            return function(*args, **kwargs)

    return run
