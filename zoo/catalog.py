"""The catalogue: which architectures, and what is known of them.

`catalog.csv` has one row per architecture: the target string, the family (the library's source file or model type), the
factory arguments, and, where somebody read the source and counted, the number of residual additions one forward
executes and why (file and expression). An empty count means: not counted by hand; only the other checks apply.
"""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

FOLDER = Path(__file__).parent
CATALOG = FOLDER / "catalog.csv"


@dataclass(frozen=True)
class Entry:
    """One architecture.

    Attributes:
        target: What a user would type after `gradscope inspect`.
        family: The source file or model type it stands for.
        arguments: Factory arguments (`-a`).
        expected: Residual additions executed by one forward, None where nobody counted.
        source: File and expression the count was read from.
    """

    target: str
    family: str
    arguments: dict[str, Any]
    expected: int | None
    source: str


def entries() -> list[Entry]:
    """Read the catalogue."""
    with CATALOG.open(newline="") as file:
        return [_entry(row) for row in csv.DictReader(file)]


def _entry(row: dict[str, str]) -> Entry:
    pairs = (pair.split("=", 1) for pair in row["arguments"].split() if pair)
    arguments = {key: ast.literal_eval(value) for key, value in pairs}
    expected = int(row["expected"]) if row["expected"] else None
    return Entry(row["target"], row["family"], arguments, expected, row["source"])


def sample(all_entries: Iterable[Entry], part: int, of: int) -> list[Entry]:
    """Return every `of`-th entry by a hash of its target: the same ones on every machine."""
    return [entry for entry in all_entries if crc32(entry.target.encode()) % of == part]
