"""The recording inside the page: put in compressed, and read back from it.

A recording that would make the file heavy is thinned, never the views: those are drawn from the whole of it. What the
page carries then is said in the page, so that nobody takes the copy for the original.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradscope.errors import RecordError
from gradscope.record import Columns, Recording
from gradscope.report.html.bundle import packed
from gradscope.report.html.wording import count, listed

RECORDING_ID = "gradscope-recording"
OPENING = f'<script type="application/gzip" id="{RECORDING_ID}">'
CLOSING = "</script>"
_EMBEDDED = re.compile(re.escape(OPENING) + r"\s*([A-Za-z0-9+/=\s]*?)\s*" + re.escape(CLOSING))

FREE_NUMBERS = 50_000
"""Measured numbers a page carries at full precision; about 0.5 MB in the file."""
MAX_NUMBERS = 50_000
"""Measured numbers a page carries at most, at DIGITS digits where there would be more."""
DIGITS, FEWEST_DIGITS = 4, 3
STEP_CHOICES = (40, 20, 10, 5, 3, 2, 1)
DETAIL_TABLES = ("histograms", "observations", "call_stats", "parameter_stats")
DEPTH_TABLES = ("site_stats", "stream_stats")


@dataclass(frozen=True)
class Embedded:
    """A recording as a page carries it.

    Attributes:
        data: Base64 of the compressed recording.
        note: What was left out of it, in one sentence; "" where nothing was.
    """

    data: str
    note: str


def embed(recording: Recording) -> Embedded:
    """Compress a recording for a page, thinned to a bearable size where it is large."""
    tables = dict(recording.tables)
    if _numbers(tables) <= FREE_NUMBERS:
        return Embedded(packed(_json(recording)), "")
    dropped = []
    for group, words in ((DETAIL_TABLES, "module and parameter statistics"), (DEPTH_TABLES, "stream statistics")):
        kept = _thin(tables, group, recording.watched_steps)
        if kept:
            dropped.append(f"{words} of {count(kept, 'step')}")
    digits = DIGITS if _numbers(tables) <= MAX_NUMBERS else FEWEST_DIGITS
    tables = {name: _round(table, digits) for name, table in tables.items()}
    note = f"numbers rounded to {digits} digits"
    if dropped:
        note = f"{listed(dropped)} only, evenly chosen of {len(recording.watched_steps)}, and {note}"
    return Embedded(packed(_json(Recording(recording.provenance, tables))), note)


def read_back(path: str | os.PathLike[str]) -> Recording:
    """Read the recording that an HTML report carries.

    Raises:
        RecordError: No such file, not a gradscope report, or damaged.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise RecordError(f"no such report: {path}", hint="gradscope inspect TARGET --html report.html") from None
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror or error}.") from None
    found = _EMBEDDED.findall(text)
    if not found:
        raise RecordError(
            f"{path} holds no recording.",
            rule="Only reports of one model that gradscope wrote can be read back.",
            hint="gradscope inspect TARGET -o run.json",
        )
    try:
        content = json.loads(gzip.decompress(base64.b64decode(found[-1], validate=False)))
    except (OSError, EOFError, ValueError, binascii.Error, RecursionError) as error:
        raise RecordError(f"the recording in {path} is damaged ({type(error).__name__}).") from None
    return Recording.from_object(content, str(path))


def _json(recording: Recording) -> str:
    return json.dumps(recording.to_object(), allow_nan=False, separators=(",", ":"))


def _numbers(tables: dict[str, Columns], names: Sequence[str] = DETAIL_TABLES + DEPTH_TABLES) -> int:
    """Count the measured numbers, a histogram's bins included."""
    total = sum(len(tables[name]["step"]) * (len(tables[name]) - 2) for name in names)
    return total + (sum(map(len, tables["histograms"]["counts"])) if "histograms" in names else 0)


def _thin(tables: dict[str, Columns], names: Sequence[str], steps: list[int]) -> int:
    """Keep fewer steps of some tables until all is small enough; return how many steps stay, 0 for all of them."""
    for choice in (number for number in STEP_CHOICES if number < len(steps)):
        if _numbers(tables) <= MAX_NUMBERS:
            break
        kept = spread(steps, choice)
        for name in names:
            tables[name] = _rows_of(tables[name], frozenset(kept))
    remaining = len(set().union(*(tables[name]["step"] for name in names)))
    return 0 if remaining >= len(steps) else remaining


def spread(steps: Sequence[int], number: int) -> list[int]:
    """Choose some steps evenly, always with the first and, from two on, the last.

    Example:
        >>> spread([0, 1, 2, 3, 4, 5], 3)
        [0, 2, 5]
    """
    if number >= len(steps):
        return list(steps)
    if number == 1:
        return [steps[0]]
    last = len(steps) - 1
    return [steps[place * last // (number - 1)] for place in range(number)]


def _rows_of(table: Columns, steps: frozenset[int]) -> Columns:
    keep = [place for place, step in enumerate(table["step"]) if step in steps]
    return {name: [values[place] for place in keep] for name, values in table.items()}


def _round(table: Columns, digits: int) -> Columns:
    def rounded(value: Any) -> Any:
        return float(f"{value:.{digits}g}") if isinstance(value, float) else value

    return {name: [rounded(value) for value in values] for name, values in table.items()}
