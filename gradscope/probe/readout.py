"""One watched step's numbers, brought over and written into the tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from gradscope.probe.attach import StepWatch
from gradscope.probe.signals.observer import Histogram, Observation
from gradscope.probe.structure.structure import Structure
from gradscope.probe.watching.rows import Handle
from gradscope.probe.watching.tables import Tables
from gradscope.probe.watching.updates import Updates

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


def write_structure(tables: Tables, structure: Structure) -> None:
    """Write down the residual sites and the stream, once they are known."""
    for site in structure.sites:
        tables.add(
            "sites", name=site.name, module=site.module, call=tables.row_of_call(site.call), op=site.op,
            kind=site.kind, counted=site.counted, placement=site.placement, branches=list(site.branches),
            skips=list(site.skips), skip_scale=site.skip_scale, branch_scale=site.branch_scale, group=site.group,
            recurrent=site.recurrent, depth=site.depth, file=tables.user_file(site.file),
            line=site.line if tables.user_file(site.file) else None,
        )  # fmt: skip
    for station in structure.stations:
        tables.add(
            "stream", name=station.name, kind=station.kind, block=station.block, module=station.module,
            call=tables.row_of_call(station.call), site=station.site,
        )  # fmt: skip
    described = tables.columns["parameters"]
    for name, row in tables.parameter_rows():  # what the graph shows of an attention beats what names suggest
        role = structure.roles.get(described["shared_with"][row] or name)
        if role is not None:
            described["role"][row] = role
    for what, why in structure.confessions:
        tables.confess(what, why)


def write_stream(
    tables: Tables, step: int, watch: StepWatch, first: Structure, number: Number, inverse_scale: float
) -> None:
    """Write a row for every site and every station of the stream that the first watched step had as well."""
    stream = watch.stream
    assert stream is not None
    assert stream.structure is not None
    sites, stations = stream.structure.rows_in(first)
    for site, seen in zip(sites, stream.site_numbers(), strict=True):
        if site is None:
            continue
        skip, branch = (times(number(handle), inverse_scale) for handle in (seen.skip_grad_norm, seen.branch_grad_norm))
        dot = times(number(seen.dot), inverse_scale**2)
        tables.add(
            "site_stats", step=step, site=site, skip_norm=number(seen.skip_norm), branch_norm=number(seen.branch_norm),
            out_norm=number(seen.out_norm), grad_norm=times(number(seen.grad_norm), inverse_scale),
            skip_grad_norm=skip, branch_grad_norm=branch, cosine=_cosine(dot, skip, branch),
        )  # fmt: skip
    for row, station, read in zip(stations, stream.structure.stations, stream.station_numbers(), strict=True):
        output = None if station.call is None else watch.outputs.main(station.call)
        forward = read.forward_norm if read.forward_norm is not None else output.forward if output is not None else None
        if row is not None:
            tables.add(
                "stream_stats", step=step, station=row, num_elements=read.num_elements, forward_norm=number(forward),
                grad_norm=times(number(read.grad_norm), inverse_scale),
            )  # fmt: skip


def _cosine(dot: float | None, a: float | None, b: float | None) -> float | None:
    if dot is None or not a or not b or not math.isfinite(dot):
        return None
    cosine = dot / a / b
    return max(-1.0, min(1.0, cosine)) if math.isfinite(cosine) else None


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
    tables.add_rows("observations", list(observations), Observation._fields, step=step)
    tables.add_rows("histograms", list(histograms), Histogram._fields, step=step)
