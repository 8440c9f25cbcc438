"""Make text safe to send to others: no absolute paths, no control characters, never longer than a line or two."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gradscope.record import Provenance, Recording

SHOWN_CHARACTERS = 96
"""Longest name a view prints in full: about one line of a phone held sideways."""

_POSIX = re.compile(r"(?<![\w.~/:])(?:file://)?~?/(?:[^\s/'\"()<>,;:\x00-\x1f]+/)+([^\s/'\"()<>,;:\x00-\x1f]*)")
_WINDOWS = re.compile(r"(?<![\w])[A-Za-z]:\\(?:[^\s\\'\"()<>,;:]+\\)*([^\s\\'\"()<>,;:]*)")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def shared(text: str) -> str:
    r"""Replace what a page must not carry: absolute paths keep their last part, control characters become "�".

    Example:
        >>> shared("failed in /home/ann/project/model.py")
        'failed in …/model.py'
    """
    text = _CONTROL.sub("\ufffd", text)
    if "/" in text:
        text = _POSIX.sub(lambda match: f"…/{match[1]}", text)
    if ":\\" in text:
        text = _WINDOWS.sub(lambda match: f"…/{match[1]}", text)
    return text


def shareable(recording: Recording) -> Recording:
    """Copy a recording with every string passed through `shared`."""
    provenance = {name: _walk(value) for name, value in vars(recording.provenance).items()}
    tables = {
        name: {
            column: values if _numeric(values) else [_walk(value) for value in values]
            for column, values in table.items()
        }
        for name, table in recording.tables.items()
    }
    return Recording(Provenance(**provenance), tables)


def shorten(text: str, limit: int = SHOWN_CHARACTERS) -> str:
    """Cut the middle out of a text that is too long to show; both ends of a module path matter.

    Example:
        >>> shorten("encoder.layers.11.attention.self.query", 20)
        'encoder.l…self.query'
    """
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2
    return f"{text[:head]}…{text[len(text) - (limit - head - 1) :]}"


def _numeric(values: list[Any]) -> bool:
    """Tell whether a column holds numbers; columns are of one kind, so its first value says it."""
    return isinstance(next((value for value in values if value is not None), 0.0), float | int)


def _walk(value: Any) -> Any:
    if isinstance(value, str):
        return shared(value)
    if isinstance(value, list | tuple):
        return [_walk(item) for item in value]
    if isinstance(value, Mapping):
        return {shared(str(key)): _walk(item) for key, item in value.items()}
    return value
