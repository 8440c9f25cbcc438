"""The user's own source lines: where a class is defined, where an operation was called, where an error was raised."""

from __future__ import annotations

import inspect
import sys
import sysconfig
import traceback
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch

OWN_FOLDER = str(Path(__file__).parents[2])
DRIVER = str(Path(__file__).parents[1] / "step.py")
"""Where gradscope itself calls the model: frames outside of it belong to whoever called gradscope."""
LIBRARY_FOLDERS = tuple(
    {sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {str(Path(torch.__file__).parents[1])}
)


@lru_cache(maxsize=4096)
def is_user_file(name: str) -> bool:
    """Whether a source file is neither ours, nor Python's, nor an installed library's."""
    return not (name.startswith(("<", OWN_FOLDER)) or name.startswith(LIBRARY_FOLDERS))


def relative(file: str, root: Path) -> str:
    """Return a path as reports show it: relative to the root, else its name alone."""
    path = Path(file)
    if not path.is_absolute():
        path = Path.cwd() / path
    try:
        return path.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        return path.name


@lru_cache(maxsize=4096)
def place_of_class(kind: Any) -> tuple[str | None, int | None]:
    """Return the file and line of a class of the user's, (None, None) for a library's."""
    try:
        file = inspect.getsourcefile(kind)
        if file is None or not is_user_file(file):
            return None, None
        return file, inspect.findsource(kind)[1] + 1
    except (OSError, TypeError, IndexError):
        return None, None


def user_frame(frame: FrameType | None = None) -> tuple[str | None, int | None]:
    """Return the file and line of the innermost running frame of the user's."""
    frame = frame if frame is not None else sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != DRIVER:
        if is_user_file(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None, None


def user_line(error: BaseException) -> tuple[str | None, int | None]:
    """Return the file and line of the last frame of the user's that an exception went through."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_user_file(frame.filename):
            return frame.filename, frame.lineno
    return None, None
