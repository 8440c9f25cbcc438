"""The catalogue: which architectures, and what is known of them.

`catalog.csv` has one row per architecture: the target string, the family (the library's source file or model type), the
factory arguments, and, where somebody read the source and counted, the number of residual additions one forward
executes and why (file and expression). An empty count means: not counted by hand; only the other checks apply.
"""

from __future__ import annotations

import ast
import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

    @property
    def library(self) -> str:
        """The scheme of the target: torchvision, timm or hf."""
        return self.target.partition(":")[0]


def entries(path: Path = CATALOG) -> list[Entry]:
    """Read a catalogue.

    Raises:
        ValueError: A target is listed twice, or a count has no source.
    """
    with path.open(newline="") as file:
        found = [_entry(row) for row in csv.DictReader(file)]
    targets = [entry.target for entry in found]
    twice = sorted({target for target in targets if targets.count(target) > 1})
    if twice:
        raise ValueError(f"{path.name} lists {', '.join(twice)} more than once")
    return found


def _entry(row: dict[str, str]) -> Entry:
    pairs = (pair.split("=", 1) for pair in row["arguments"].split())
    arguments = {key: ast.literal_eval(value) for key, value in pairs}
    expected = int(row["expected"]) if row["expected"] else None
    if expected is not None and not row["source"]:
        raise ValueError(f"{row['target']}: a count of {expected} without the file and expression it was read from")
    return Entry(row["target"], row["family"], arguments, expected, row["source"])
