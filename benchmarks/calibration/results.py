"""Results as CSV files that grow a line at a time, so that a run can stop anywhere and go on."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

FOLDER = Path(__file__).parent
OUTCOMES = FOLDER / "outcomes.csv"
PREDICTORS = FOLDER / "predictors.csv"
PEERS = FOLDER / "peers.csv"
RECORDINGS = FOLDER / "recordings"


def read(path: Path) -> list[dict[str, str]]:
    """Read all rows; none where the file does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(path: Path, row: Mapping[str, object]) -> None:
    """Add one row in one write, so that several runs may append to the same file."""
    line = io.StringIO()
    writer = csv.DictWriter(line, list(row), lineterminator="\n")
    if not path.exists():
        writer.writeheader()
    writer.writerow({key: _short(value) for key, value in row.items()})
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, line.getvalue().encode())
    finally:
        os.close(descriptor)


def write(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write all rows anew."""
    path.unlink(missing_ok=True)
    for row in rows:
        append(path, row)


def _short(value: object) -> object:
    return f"{value:.5g}" if isinstance(value, float) else value
