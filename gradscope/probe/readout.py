"""One watched step's numbers, brought over and written into the tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from gradscope.probe.attach import StepWatch
from gradscope.probe.rows import Handle
from gradscope.probe.signals.observer import Histogram, Observation
from gradscope.probe.tables import Tables
from gradscope.probe.updates import Updates

Number = Callable[[Handle | None], float | None]
"""Turns a handle into the number behind it."""


def times(value: float | None, factor: float) -> float | None:
    """Multiply a number that may be missing."""
    return None if value is None else value * factor


def write_calls(tables: Tables, step: int, watch: StepWatch, number: Number, inverse_scale: float) -> None:
    """Write a row for every call that returned a tensor.

    Args:
        tables: Where to.
        step: Which step.
        watch: What watched it.
        number: Turns a handle into its number.
        inverse_scale: One over the loss scale.
    """
    calls = watch.tracker.calls
    tables.add_calls(calls)
    for call in calls:
        output = watch.outputs.main(call)
        if output is not None:
            tables.add(
                "call_stats", step=step, call=tables.row_of_call(call), num_elements=output.num_elements,
                forward_norm=number(output.forward), grad_norm=times(number(output.gradient), inverse_scale),
            )  # fmt: skip


def write_parameters(
    tables: Tables, step: int, watch: StepWatch, updates: Updates | None, number: Number, inverse_scale: float
) -> float | None:
    """Write a row for every parameter; return the norm of all gradients together, None where none arrived."""
    total: float | None = None
    described = tables.columns["parameters"]
    for name, row in tables.parameter_rows():
        first = described["shared_with"][row]
        norm = times(number(watch.parameters.norms.get(first or name)), inverse_scale)
        if described["takes_part"][row] is None and described["requires_grad"][row]:
            described["takes_part"][row] = norm is not None
        tables.add(
            "parameter_stats", step=step, parameter=row, grad_norm=norm,
            weight_norm=None if updates is None else number(updates.weights.get(first or name)),
            update_norm=None if updates is None else number(updates.changes.get(first or name)),
        )  # fmt: skip
        if norm is not None and first is None:
            total = norm if total is None else math.hypot(total, norm)
    return total


def write_signals(
    tables: Tables, step: int, observations: Iterable[Observation], histograms: Iterable[Histogram]
) -> None:
    """Write what the signals saw."""
    for seen in observations:
        tables.add(
            "observations", step=step, metric=seen.metric, module=seen.module, call=seen.call, value=seen.value
        )
    for histogram in histograms:
        tables.add(
            "histograms", step=step, name=histogram.name, kind=histogram.kind, first_log2=histogram.first_log2,
            counts=histogram.counts, zeros=histogram.zeros, nonfinite=histogram.nonfinite,
        )  # fmt: skip
