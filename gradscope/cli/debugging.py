"""Whether the user wants tracebacks: --debug on a command, or GRADSCOPE_DEBUG in the environment."""

from __future__ import annotations

import os

_VARIABLE = "GRADSCOPE_DEBUG"


def debug_wanted() -> bool:
    """Say whether tracebacks are to be shown."""
    return os.environ.get(_VARIABLE, "") not in ("", "0")


def remember_debug(wanted: bool) -> bool:
    """Keep --debug where the error funnel finds it, also after the command's own frames are gone."""
    if wanted:
        os.environ[_VARIABLE] = "1"
    return wanted
