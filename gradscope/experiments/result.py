"""What an experiment reports: tables, and claims judged by what was measured. Torch-free, JSON-serialisable."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gradscope.record import json_number

ClaimVerdict = Literal["holds", "does not hold", "depends"]
Cell = float | int | str | bool | None

RESULT_SCHEMA = 1


@dataclass(frozen=True)
class Check:
    """A claim tested in one setting: a measured number, and the range in which it would bear the claim out.

    Attributes:
        setting: Under which conditions.
        measure: What was measured, with unit.
        value: The number.
        low: The claim needs at least this; None for no lower end.
        high: The claim needs at most this; None for no upper end.
    """

    setting: str
    measure: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the number lies in the claim's range; one that is not a number lies in none."""
        if math.isnan(self.value):
            return False
        return (self.low is None or self.value >= self.low) and (self.high is None or self.value <= self.high)

    @property
    def criterion(self) -> str:
        """The range, in words."""
        if self.low is not None and self.high is not None:
            return f"from {self.low:g} to {self.high:g}"
        return f"at least {self.low:g}" if self.low is not None else f"at most {self.high:g}"


@dataclass(frozen=True)
class Claim:
    """A sentence somebody wrote, and what measurement says to it.

    Attributes:
        text: The claim.
        source: Who makes it.
        checks: The settings it was tested in; the verdict follows from them alone.
        reading: What the numbers mean, in one or two sentences.
    """

    text: str
    source: str
    checks: tuple[Check, ...]
    reading: str = ""

    @property
    def verdict(self) -> ClaimVerdict:
        """Holds where every check does, does not hold where none does, depends on the setting otherwise."""
        outcomes = {check.holds for check in self.checks}
        if outcomes == {True}:
            return "holds"
        return "depends" if len(outcomes) > 1 else "does not hold"

    @property
    def evidence(self) -> dict[str, float]:
        """The measured numbers by setting and measure."""
        return {f"{check.setting}: {check.measure}": check.value for check in self.checks}


@dataclass(frozen=True)
class Table:
    """One table of results.

    Attributes:
        title: What it shows.
        columns: Headings, with units.
        rows: As long as `columns` each; None where there is no number.
        note: How to read it.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class ExperimentResult:
    """Everything one experiment found.

    Attributes:
        name: The experiment's name in the catalogue.
        title: Its title.
        tables: What was measured.
        claims: What it says to the claims.
        notes: Setting and limits, one sentence each.
        quick: Whether the short form ran.
        seconds: How long it took.
    """

    name: str
    title: str
    tables: tuple[Table, ...]
    claims: tuple[Claim, ...]
    notes: tuple[str, ...] = ()
    quick: bool = False
    seconds: float = 0.0
    provenance: Mapping[str, str] = field(default_factory=dict)

    def to_object(self) -> dict[str, Any]:
        """Return a JSON-ready object; non-finite numbers become "nan", "inf", "-inf"."""
        return {
            "format": "gradscope-experiment",
            "schema": RESULT_SCHEMA,
            "name": self.name,
            "title": self.title,
            "quick": self.quick,
            "seconds": self.seconds,
            "provenance": dict(self.provenance),
            "tables": [_table_object(table) for table in self.tables],
            "claims": [_claim_object(claim) for claim in self.claims],
            "notes": list(self.notes),
        }


def _table_object(table: Table) -> dict[str, Any]:
    rows = [[json_number(cell) if isinstance(cell, float) else cell for cell in row] for row in table.rows]
    return {"title": table.title, "columns": list(table.columns), "rows": rows, "note": table.note}


def _claim_object(claim: Claim) -> dict[str, Any]:
    return {
        "text": claim.text,
        "source": claim.source,
        "verdict": claim.verdict,
        "reading": claim.reading,
        "checks": [
            {
                "setting": check.setting,
                "measure": check.measure,
                "value": json_number(float(check.value)),
                "criterion": check.criterion,
                "holds": check.holds,
            }
            for check in claim.checks
        ],
    }


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], note: str = "") -> Table:
    """Make a table from lists.

    Raises:
        ValueError: A row is not as long as the headings.
    """
    if any(len(row) != len(columns) for row in rows):
        raise ValueError(f"a row of table '{title}' does not have {len(columns)} cells")
    return Table(title, tuple(columns), tuple(tuple(row) for row in rows), note)
