"""The table of results: one row per architecture, committed as results.csv, and what counts as worse."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from zoo.catalog import FOLDER, Entry, counts

RESULTS = FOLDER / "results.csv"
KNOWN = FOLDER / "known_faults.csv"
QUICK, SLOW = "quick", "slow"
UNCOUNTED = ("concat", "recurrent")
"""What the column of kinds also lists: sites that are no residual additions between layers."""
NOT_REPEATED = "a bare step does not repeat"
"""Two steps from one state differ without us: whether watching changes anything cannot be told."""
QUICK_CPU_S = 12.0
"""Processor time up to which an architecture may be part of CI's sample."""


@dataclass(frozen=True)
class Row:
    """What came out for one architecture; every cell is text, as in the file.

    Attributes:
        target: The target string.
        runs: "yes", or the first line of what went wrong.
        unchanged: "yes" if loss, gradients and buffers were bitwise those of the bare step, "no", `NOT_REPEATED` or "".
        found: Residual additions found.
        expected: Residual additions counted by hand, "" where nobody did.
        kinds: Kinds of the sites and their number; "concat" and "recurrent" ones are no counted additions.
        verdict: The verdict.
        errors: Codes of error-level findings (false alarms: these are standard initialisations).
        hidden: What could not be seen, by name.
        pace: "quick" or "slow": whether CI's sample may hold it.
        commit: The commit it was measured on, with a "+" behind it where files differed from it.
        expected_kinds: Kinds read by hand, "" where nobody did.
        placements: Where the counted additions' blocks normalise, and their number; "" where it was not yet noted.
        expected_placements: The same read by hand, "" where nobody did.
    """

    target: str
    runs: str
    unchanged: str = ""
    found: str = ""
    expected: str = ""
    kinds: str = ""
    verdict: str = ""
    errors: str = ""
    hidden: str = ""
    pace: str = SLOW
    commit: str = ""
    expected_kinds: str = ""
    placements: str = ""
    expected_placements: str = ""

    @property
    def ran(self) -> bool:
        """Whether it was loaded, stepped and judged."""
        return self.runs == "yes"

    def faults(self) -> dict[str, str]:
        """What is not as it should be: the kind of fault (as in known_faults.csv) and a sentence."""
        if not self.ran:
            return {"runs": f"does not run: {self.runs}"}
        found = {}
        if self.unchanged != "yes":
            differ = "gradients differ from the bare step"
            found["unchanged"] = NOT_REPEATED if self.unchanged == NOT_REPEATED else differ
        if self.expected and self.found != self.expected:
            found["found"] = f"{self.found} residual additions instead of {self.expected}"
        for column, (seen, read) in self.split().items():
            if seen != read:
                found[column] = f"{column} {cell(seen)} instead of {cell(read)}"
        if self.errors:
            found["errors"] = f"false alarm {self.errors}"
        return found

    def split(self) -> dict[str, tuple[Counter[str], Counter[str]]]:
        """The counted additions by kind and by placement, as found and as read by hand, where both are known."""
        pairs = {
            "kinds": (self.kinds, self.expected_kinds),
            "placements": (self.placements, self.expected_placements),
        }
        return {
            column: (Counter({word: n for word, n in counts(seen).items() if word not in UNCOUNTED}), counts(read))
            for column, (seen, read) in pairs.items()
            if seen and read
        }


def by_hand(entry: Entry) -> dict[str, str]:
    """Return the cells that say what was read by hand."""
    expected = "" if entry.expected is None else str(entry.expected)
    return {"expected": expected, "expected_kinds": entry.kinds, "expected_placements": entry.placements}


def cell(split: Counter[str]) -> str:
    """Return a cell such as "identity:5 projection:3"."""
    return " ".join(f"{word}:{number}" for word, number in sorted(split.items()))


def regressions(now: Row, before: Row | None, known: Iterable[str]) -> list[str]:
    """Return what fails a run: faults that are not known, and cells worse than the committed ones.

    Args:
        now: What came out.
        before: The committed row; None for a new architecture.
        known: Kinds of fault listed for this target in known_faults.csv.

    An architecture that the committed table lists as not running may go on not running.
    """
    excused = set(known)
    if before is not None and not before.ran:
        excused.add("runs")
    worse = [sentence for kind, sentence in now.faults().items() if kind not in excused]
    if before is None or not before.ran or not now.ran:
        return worse
    new_codes = set(now.errors.split()) - set(before.errors.split())
    if "errors" in excused and new_codes:
        worse.append(f"new false alarm {' '.join(sorted(new_codes))}")
    if now.found != before.found and (not now.expected or "found" in excused):
        worse.append(f"{now.found} residual additions found, {before.found} in results.csv; if right, --write")
    return worse


def read(path: Path = RESULTS) -> dict[str, Row]:
    """Read the committed table; empty if there is none."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {row["target"]: Row(**row) for row in csv.DictReader(file)}


def write(rows: Iterable[Row], path: Path = RESULTS) -> None:
    """Write the table, sorted by target."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(Row.__dataclass_fields__), lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in sorted(rows, key=lambda row: row.target))


def known_faults(path: Path = KNOWN) -> dict[str, dict[str, str]]:
    """Read the known faults: for each target the kinds of fault and their reasons."""
    if not path.exists():
        return {}
    known: dict[str, dict[str, str]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            known.setdefault(row["target"], {})[row["fault"]] = row["reason"]
    return known
