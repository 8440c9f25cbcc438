"""zoo/coverage.csv: one row for every target that was tried, and what came of it."""

from __future__ import annotations

import csv
from pathlib import Path

from zoo.catalog import FOLDER

TABLE = FOLDER / "coverage.csv"
COLUMNS = ("target", "outcome", "model", "parameters", "idle", "cpu_s", "detail", "commit")
"""`parameters` and `idle` count parameter tensors: those that train, and those of them without a gradient."""
STEPS, NOT_FINITE, NO_GRADIENT = "steps", "not finite", "no gradient"
NO_INPUTS, NOT_BUILT, STEP_RAISED, KILLED = "no inputs found", "not buildable", "the step raised", "over the limits"
INFERENCE_ONLY, PART_STEPS = "inference only", "a part steps"
OUTCOMES = (STEPS, PART_STEPS, NOT_FINITE, NO_GRADIENT, STEP_RAISED, NO_INPUTS, INFERENCE_ONLY, NOT_BUILT, KILLED)

Row = dict[str, str]


def read(path: Path = TABLE) -> dict[str, Row]:
    """Read the table, by target; empty where there is none yet."""
    if not path.is_file():
        return {}
    with path.open(newline="") as file:
        return {row["target"]: row for row in csv.DictReader(file)}


def write(rows: dict[str, Row], path: Path = TABLE) -> None:
    """Write the table, sorted by target; a run that is stopped while writing leaves the old one."""
    beside = path.with_suffix(".new")
    with beside.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[target] for target in sorted(rows))
    beside.replace(path)
