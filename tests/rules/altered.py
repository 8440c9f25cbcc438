"""Recordings altered as a changed loss, batch, width or fault would alter them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gradscope.record import Recording

GRADIENT_COLUMNS = {
    "steps": ("grad_norm",),
    "call_stats": ("grad_norm", "grad_absmax"),
    "parameter_stats": ("grad_norm",),
    "site_stats": ("grad_norm", "skip_grad_norm", "branch_grad_norm"),
    "stream_stats": ("grad_norm",),
}


def copied(recording: Recording) -> Recording:
    return Recording(recording.provenance, copy.deepcopy(dict(recording.tables)))


def scaled_loss(recording: Recording, factor: float) -> Recording:
    """The same network with its loss multiplied by a factor."""
    result = copied(recording)
    for table, columns in GRADIENT_COLUMNS.items():
        for column in columns:
            values = result.tables[table][column]
            values[:] = [None if value is None else value * factor for value in values]
    losses = result.tables["steps"]["loss"]
    losses[:] = [None if loss is None else loss * factor for loss in losses]
    return result


def repeated_batch(recording: Recording, times: int) -> Recording:
    """The same network with each sample `times` times in the batch, under a mean loss (identity E8)."""
    result = copied(recording)
    for table in ("call_stats", "site_stats", "stream_stats"):
        for column, values in result.tables[table].items():
            if column.endswith("grad_norm"):
                values[:] = [None if value is None else value / times**0.5 for value in values]
            elif column in ("forward_norm", "skip_norm", "branch_norm", "out_norm"):
                values[:] = [None if value is None else value * times**0.5 for value in values]
            elif column == "num_elements":
                values[:] = [None if value is None else value * times for value in values]
    return result


def edit(recording: Recording, table: str, column: str, change: Callable[[dict[str, Any]], Any]) -> Recording:
    """A copy with one column recomputed from its rows."""
    result = copied(recording)
    result.tables[table][column][:] = [change(row) for row in recording.rows(table)]
    return result


def rename(recording: Recording, **provenance: Any) -> Recording:
    """A copy with other provenance."""
    return Recording(replace(recording.provenance, **provenance), recording.tables)


def silence(recording: Recording, modules: set[str], parameters: set[str], steps: set[int] | None = None) -> Recording:
    """A copy in which calls of the modules and the parameters get a gradient of exactly zero (at some steps)."""

    def hit(step: int) -> bool:
        return steps is None or step in steps

    names, calls = recording.tables["parameters"]["name"], recording.tables["calls"]["module"]
    result = edit(
        recording, "call_stats", "grad_norm",
        lambda row: 0.0 if calls[row["call"]] in modules and hit(row["step"]) else row["grad_norm"],
    )
    result = edit(
        result, "parameter_stats", "grad_norm",
        lambda row: 0.0 if names[row["parameter"]] in parameters and hit(row["step"]) else row["grad_norm"],
    )
    return edit(
        result, "parameter_stats", "update_norm",
        lambda row: 0.0 if names[row["parameter"]] in parameters and steps is None else row["update_norm"],
    )
