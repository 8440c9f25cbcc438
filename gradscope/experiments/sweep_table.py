"""A sweep's rows as a table: one line per choice of arguments, seeds summarised. Without torch."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Sequence

from gradscope.experiments.result import Cell, Table, table
from gradscope.experiments.sweep_laws import Row


def sweep_table(rows: Sequence[Row], axes: Sequence[str]) -> Table:
    """Summarise the rows over seeds.

    Args:
        rows: The sweep's rows.
        axes: The arguments that varied.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(json.dumps([row.arguments.get(axis) for axis in axes], default=str), []).append(row)
    lines = [_line(members, axes) for members in groups.values()]
    headings = ("blocks", "D (decades)", "sd", "Jacobian anisotropy", "token cosine", "verdict")
    note = "Mean and standard deviation (sd) over seeds; the anisotropy is their median."
    return table("Sweep", (*axes, *headings), lines, note)


def _line(rows: Sequence[Row], axes: Sequence[str]) -> tuple[Cell, ...]:
    decades = _numbers(rows, "decades")
    anisotropy = _numbers(rows, "jacobian_anisotropy")
    cosine = _numbers(rows, "token_cosine")
    blocks = _numbers(rows, "num_blocks")
    return (
        *(_cell(rows[0].arguments.get(axis)) for axis in axes),
        int(blocks[0]) if blocks else None,
        statistics.fmean(decades) if decades else None,
        statistics.stdev(decades) if len(decades) > 1 else None,
        statistics.median(anisotropy) if anisotropy else None,
        statistics.fmean(cosine) if cosine else None,
        _verdicts(rows),
    )


def _cell(value: object) -> Cell:
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


def _numbers(rows: Sequence[Row], metric: str) -> list[float]:
    return [float(value) for row in rows if (value := row.metrics.get(metric)) is not None]


def _verdicts(rows: Sequence[Row]) -> str:
    """The verdict where all seeds agree, else how many say what."""
    counts = Counter("not measured" if row.verdict is None else row.verdict.replace("-", " ") for row in rows)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
