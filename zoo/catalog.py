"""The catalogue: which architectures, and what is known of them.

`catalog.csv` has one row per architecture: the target string, the family (the library's source file or model type), the
factory arguments, and, where somebody read the source and counted, the number of residual additions one forward
executes and why (file and expression). Where somebody read more, the columns `kinds` and `placements` split that number
by what the additions are and by where their blocks normalise, in the words of docs/residual-additions.md:
`identity:5 projection:3`. An empty cell means: not read by hand; only the other checks apply.
"""

from __future__ import annotations

import ast
import csv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
CATALOG = FOLDER / "catalog.csv"
WORDS = {
    "kinds": ("identity", "scaled", "gated", "projection"),
    "placements": ("pre", "post", "sandwich", "output", "none"),
}
"""The columns that split a count, and what their cells may say."""


@dataclass(frozen=True)
class Entry:
    """One architecture.

    Attributes:
        target: What a user would type after `gradscope inspect`.
        family: The source file or model type it stands for.
        arguments: Factory arguments (`-a`).
        expected: Residual additions executed by one forward, None where nobody counted.
        source: File and expression the count was read from.
        kinds: The additions by kind, such as "identity:5 projection:3"; "" where nobody read them.
        placements: The additions by where the block normalises, such as "pre:8"; "" where nobody read it.
    """

    target: str
    family: str
    arguments: dict[str, Any]
    expected: int | None
    source: str
    kinds: str = ""
    placements: str = ""

    @property
    def library(self) -> str:
        """The scheme of the target: torchvision, timm or hf."""
        return self.target.partition(":")[0]


def entries(path: Path = CATALOG) -> list[Entry]:
    """Read a catalogue.

    Raises:
        ValueError: A target is listed twice, a count has no source, or what splits a count does not add up to it.
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
    for column, words in WORDS.items():
        split = counts(row[column])
        if split and (set(split) - set(words) or split.total() != expected):
            raise ValueError(f"{row['target']}: {column} {row[column]!r} is no sum of {', '.join(words)} to {expected}")
    return Entry(
        row["target"], row["family"], arguments, expected, row["source"], row["kinds"], row["placements"]
    )


def counts(cell: str) -> Counter[str]:
    """Read a cell such as "identity:5 projection:3"."""
    return Counter({word: int(number) for word, number in (item.split(":") for item in cell.split())})
