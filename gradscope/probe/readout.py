"""One watched step's numbers, brought over and written into the tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from gradscope.probe.attach import StepWatch
from gradscope.probe.signals.observer import Histogram, Observation
from gradscope.probe.structure.stations import Station
from gradscope.probe.structure.streams import SiteNumbers, StationNumbers, StreamWatch
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
    main, row_of = watch.outputs.main, tables.row_of_call
    rows = [
        (row_of(call), output.num_elements, number(output.forward), times(number(output.gradient), inverse_scale))
        for call in calls
        if (output := main(call)) is not None
    ]
    tables.add_rows("call_stats", rows, ("call", "num_elements", "forward_norm", "grad_norm"), step=step)


def write_structure(tables: Tables, step: int, structure: Structure) -> None:
    """Write down the residual sites and the stream, once they are known at a step."""
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
    ends = [Observation("size_forgotten", *_key(station), 1.0) for station in structure.stations if station.forgotten]
    tables.add_rows("observations", ends, Observation._fields, step=step)
    described = tables.columns["parameters"]
    for name, row in tables.parameter_rows():  # what the graph shows of an attention beats what names suggest
        role = structure.roles.get(described["shared_with"][row] or name)
        if role is not None:
            described["role"][row] = role
    for what, why in structure.confessions:
        tables.confess(what, why)


def _key(station: Station) -> tuple[str, int]:
    return station.module, 0 if station.call is None else station.call.call


def write_stream(
    tables: Tables, step: int, watch: StepWatch, first: Structure, number: Number, inverse_scale: float
) -> None:
    """Write a row for every site and every station of the stream that the first watched step had as well."""
    stream = watch.stream
    assert stream is not None
    assert stream.structure is not None
    sites, stations = stream.structure.rows_in(first)
    found = [
        (site, *_site_row(seen, number, inverse_scale))
        for site, seen in zip(sites, stream.site_numbers(), strict=True)
        if site is not None
    ]
    tables.add_rows("site_stats", found, _SITE_COLUMNS, step=step)
    read = zip(stations, stream.structure.stations, stream.station_numbers(), strict=True)
    rows = [
        (row, seen.num_elements, number(_forward(watch, station, seen)), times(number(seen.grad_norm), inverse_scale))
        for row, station, seen in read
        if row is not None
    ]
    tables.add_rows("stream_stats", rows, ("station", "num_elements", "forward_norm", "grad_norm"), step=step)
    _write_start(tables, step, stream, number)


def _write_start(tables: Tables, step: int, stream: StreamWatch, number: Number) -> None:
    assert stream.flows is not None
    weighted, whole = number(stream.flows.weighted_start), number(next(iter(stream.flows.stations), None))
    if weighted is not None and whole and math.isfinite(whole):
        tables.add("observations", step=step, metric="start_rows_share", module="", call=0, value=weighted / whole)


_SITE_COLUMNS = (
    "site", "skip_norm", "branch_norm", "out_norm", "grad_norm", "skip_grad_norm", "branch_grad_norm", "cosine",
)  # fmt: skip


def _site_row(seen: SiteNumbers, number: Number, inverse_scale: float) -> tuple[float | None, ...]:
    grad, skip, branch = (
        times(number(handle), inverse_scale) for handle in (seen.grad_norm, seen.skip_grad_norm, seen.branch_grad_norm)
    )
    cosine = _cosine(times(number(seen.dot), inverse_scale**2), skip, branch)
    return number(seen.skip_norm), number(seen.branch_norm), number(seen.out_norm), grad, skip, branch, cosine


def _forward(watch: StepWatch, station: Station, seen: StationNumbers) -> Handle | None:
    """Return where the norm of a station is: its own, or that of the output that it is."""
    if seen.forward_norm is not None or station.call is None:
        return seen.forward_norm
    output, shape = watch.outputs.main(station.call), station.call.shape
    if output is None or shape is None or (seen.num_elements is not None and math.prod(shape) != seen.num_elements):
        return None  # another of the tensors that the call returns
    return output.forward


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
    shared_with, takes_part, wanted = (described[column] for column in ("shared_with", "takes_part", "requires_grad"))
    rows = []
    for name, row in tables.parameter_rows():
        first = shared_with[row] or name
        norm = times(number(watch.parameters.norms.get(first)), inverse_scale)
        if takes_part[row] is None and wanted[row]:
            takes_part[row] = norm is not None
        weight, update = (None, None) if updates is None else (updates.weights.get(first), updates.changes.get(first))
        rows.append((row, norm, number(weight), number(update)))
        if norm is not None and first == name:
            total = norm if total is None else math.hypot(total, norm)
    tables.add_rows("parameter_stats", rows, ("parameter", "grad_norm", "weight_norm", "update_norm"), step=step)
    return total


def write_signals(
    tables: Tables, step: int, observations: Iterable[Observation], histograms: Iterable[Histogram]
) -> None:
    """Write what the signals saw."""
    tables.add_rows("observations", list(observations), Observation._fields, step=step)
    tables.add_rows("histograms", list(histograms), Histogram._fields, step=step)
