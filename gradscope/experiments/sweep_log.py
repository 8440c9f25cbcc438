"""The file a sweep keeps its rows in as it goes: one JSON object a line. Without torch."""

from __future__ import annotations

import json
from pathlib import Path

from gradscope.errors import RecordError
from gradscope.experiments.sweep_laws import Row


def read_log(log: Path | None) -> dict[str, Row]:
    """Read the rows of an earlier, perhaps interrupted sweep, by their keys; a half-written last line is cut off.

    Raises:
        RecordError: The file is something else.
    """
    if log is None or not log.exists():
        return {}
    text = log.read_text(encoding="utf-8")
    whole, newline, cut_off = text.rpartition("\n")
    rows = {}
    for number, line in enumerate(whole.splitlines() if newline else [], start=1):
        try:
            content = json.loads(line)
            rows[str(content.pop("key"))] = Row.from_object(content)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RecordError(
                f"{log} line {number} is not a row of a sweep.", hint="name another file, or remove this one"
            ) from None
    if cut_off and rows:
        log.write_text(whole + "\n", encoding="utf-8")
    elif cut_off:
        raise RecordError(f"{log} is not the log of a sweep.", hint="name another file, or remove this one")
    return rows


def append_row(log: Path | None, key: str, row: Row) -> None:
    """Add a row to the log, where there is one.

    Raises:
        RecordError: The file cannot be written.
    """
    if log is None:
        return
    try:
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, **row.to_object()}) + "\n")
    except OSError as error:
        raise RecordError(f"cannot write {log}: {error.strerror or error}.") from None
