"""Where the user's code stands while a function of torch runs: the innermost frame that is neither torch's nor ours."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import CodeType, FrameType

import torch

_PASSED_OVER = (f"{Path(torch.__file__).parent}/", f"{Path(__file__).parents[1]}/", "<")
"""How the names of the files begin that are not the user's: torch's, ours, and code that has no file."""


def written_at(frame: FrameType | None) -> tuple[CodeType | None, int | None]:
    """Return the user's code that runs in a frame or calls it, and the line; (None, None) where there is none."""
    while frame is not None and _is_passed_over(frame.f_code.co_filename):
        frame = frame.f_back
    return (None, None) if frame is None else (frame.f_code, frame.f_lineno)


@cache
def _is_passed_over(file: str) -> bool:
    return file.startswith(_PASSED_OVER)
