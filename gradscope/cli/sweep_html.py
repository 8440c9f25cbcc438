"""A sweep as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradscope.experiments.sweep import SweepResult
from gradscope.experiments.sweep_laws import DECADES_LIMIT, Row
from gradscope.experiments.sweep_table import sweep_table
from gradscope.report.html.panel import Column, Table
from gradscope.report.html.sweep import Curve, Sweep, SweepPoint, write_sweep

_METRIC = "decades"


def write_sweep_page(result: SweepResult, file: Path) -> None:
    """Write the page: decades over the number of blocks, with the fitted laws drawn beyond the data."""
    laws = [law.to_object() for law in result.laws]
    main = [law for law in laws if law["metric"] == _METRIC]
    lead = [law for law in laws if law in main or law["metric"] in _breaking(result)]
    values = ", ".join(f"{name} {', '.join(map(str, values))}" for name, values in result.axes.items())
    page = Sweep(
        heading=f"{result.target}: {values}",
        lead=" ".join(_told(law) for law in lead) or "No law of depth could be fitted.",
        argument="blocks",
        measure="D: gradient, start over end (decades)",
        points=[point for row in result.rows if (point := _point(row, list(result.axes))) is not None],
        curves=[_curve(law) for law in main if law.get("curve")],
        limits=[(-DECADES_LIMIT, "networks beyond did not train"), (DECADES_LIMIT, "networks beyond did not train")],
        tables=[_table(result)],
        notes=[*(_told(law) for law in laws if law not in lead), *result.notes],
    )
    write_sweep(page, file)


def _breaking(result: SweepResult) -> set[str]:
    """Return the quantities whose breaking depth is known, or that are past their limit from the start."""
    return {law.quantity.metric for law in result.laws if law.breaks and (law.breaks.known or law.breaks.already)}


def _told(law: Mapping[str, Any]) -> str:
    others = ", ".join(f"{name}={value}" for name, value in law["others"].items())
    return f"{others}: {law['sentence']}" if others else str(law["sentence"])


def _point(row: Row, axes: Sequence[str]) -> SweepPoint | None:
    place = row.metrics.get("num_blocks")
    if place is None or row.verdict is None:
        return None
    label = ", ".join(f"{axis}={row.arguments.get(axis)}" for axis in axes)
    return SweepPoint(float(place), row.metrics.get(_METRIC), row.verdict, f"{label}, seed {row.seed}")


def _curve(law: Mapping[str, Any]) -> Curve:
    places, middle, low, high = zip(*law["curve"], strict=True)
    name = ", ".join(f"{key}={value}" for key, value in law["others"].items()) or str(law["shape"])
    return Curve(name, places, middle, low, high)


def _table(result: SweepResult) -> Table:
    table = sweep_table(result.rows, list(result.axes))
    numeric = [
        all(isinstance(row[place], int | float | None) for row in table.rows) for place in range(len(table.columns))
    ]
    columns = tuple(
        Column(name, "number" if number else "text") for name, number in zip(table.columns, numeric, strict=True)
    )
    return Table(table.title, columns, table.rows)
