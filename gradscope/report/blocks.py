"""The rows of the profile and of the table: one per block of the stream, with what was recorded of it side by side.

Nothing is judged here; a row only brings numbers of several tables together (norms of a block's parameters are joined
as the root of the sum of squares, ratios are quotients of two recorded norms, changes are in decades, log10).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradscope.record import Columns, Recording
from gradscope.report.numbers import log_change, ratio
from gradscope.rules.finding import Finding


@dataclass(frozen=True)
class Block:
    """One block of the stream (or, where no stream was found, one call of a module with parameters).

    Attributes:
        name: The block's name, or the station's where it lies outside the repeated blocks.
        call: Which passage through the same block, from 0.
        grad_norm: Gradient norm at the block's output at the step shown; None where no gradient was seen.
        later_grad_norm: The same at the last watched step; None where there is only one.
        change_decades: log10(gradient norm at its input / at its output); negative shrinks toward the input.
        forward_norm: Norm of the block's output.
        forward_ratio: Largest branch/skip norm of its residual additions; None where it has none.
        backward_ratio: Largest branch/skip gradient norm of its residual additions.
        parameter_grad_norm: Gradient norm of its parameters together.
        update_ratio: Norm of the parameters' update over that of the parameters.
        findings: The findings placed in this block, most severe first.
    """

    name: str
    call: int
    grad_norm: float | None
    later_grad_norm: float | None
    change_decades: float | None
    forward_norm: float | None
    forward_ratio: float | None
    backward_ratio: float | None
    parameter_grad_norm: float | None
    update_ratio: float | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Blocks:
    """The blocks in order from input to loss, the step they are shown at, and the last one watched (or None)."""

    rows: tuple[Block, ...]
    step: int
    later_step: int | None
    on_stream: bool


@dataclass(frozen=True)
class _Stop:
    """A block before its numbers: its name and passage, the rows of the stream or call table it covers, its sites."""

    name: str
    call: int
    rows: tuple[int, ...]
    sites: tuple[int, ...]
    labels: tuple[str, ...]


def blocks_of(recording: Recording, findings: Sequence[Finding]) -> Blocks:
    """Gather the blocks of a recording, with the findings placed on them."""
    steps = recording.watched_steps
    step, later = (steps[0] if steps else 0), (steps[-1] if len(steps) > 1 else None)
    on_stream = recording.num_rows("stream") > 0
    stops = _stream_stops(recording) if on_stream else _call_stops(recording)
    table, key = ("stream_stats", "station") if on_stream else ("call_stats", "call")
    now = _at_step(recording.tables[table], key, step)
    end = _at_step(recording.tables[table], key, later) if later is not None else {}
    site_stats = _at_step(recording.tables["site_stats"], "site", step)
    parameters = _parameters_by_stop(recording, stops, step)
    placed = _findings_by_stop(stops, findings)
    rows, before = [], None
    for number, stop in enumerate(stops):
        grad = _last(now, stop.rows, "grad_norm")
        sites = [site_stats[site] for site in stop.sites if site in site_stats]
        gradient, update = parameters.get(number, (None, None))
        rows.append(
            Block(
                name=stop.name,
                call=stop.call,
                grad_norm=grad,
                later_grad_norm=_last(end, stop.rows, "grad_norm"),
                change_decades=log_change(before, grad) if on_stream else None,
                forward_norm=_last(now, stop.rows, "forward_norm"),
                forward_ratio=_largest(ratio(site["branch_norm"], site["skip_norm"]) for site in sites),
                backward_ratio=_largest(ratio(site["branch_grad_norm"], site["skip_grad_norm"]) for site in sites),
                parameter_grad_norm=gradient,
                update_ratio=update,
                findings=tuple(placed.get(number, ())),
            )
        )
        before = grad
    return Blocks(tuple(rows), step, later, on_stream)


def _stream_stops(recording: Recording) -> list[_Stop]:
    """Join consecutive stations of one passage through a block."""
    groups: list[list[tuple[int, dict[str, Any]]]] = []
    closed = True
    for number, station in enumerate(recording.rows("stream")):
        block = station["block"]
        previous = groups[-1] if groups else []
        passage_ended = closed or not previous or previous[-1][1]["block"] != block
        if block is None or passage_ended or station["name"] in {row["name"] for _, row in previous}:
            groups.append([])
        groups[-1].append((number, station))
        closed = block is None or station["kind"] == "block"
    names = [group[0][1]["block"] or group[0][1]["name"] for group in groups]
    return [
        _Stop(
            name,
            call,
            tuple(number for number, _ in group),
            tuple(row["site"] for _, row in group if row["site"] is not None),
            tuple(label for _, row in group for label in (row["name"], row["module"]) if label),
        )
        for name, call, group in zip(names, _passages(names), groups, strict=True)
    ]


def _call_stops(recording: Recording) -> list[_Stop]:
    """Without a stream, list the calls of the modules that hold parameters themselves, in order."""
    holders = set(recording.tables["parameters"]["module"])
    calls = recording.tables["calls"]
    if not calls["module"]:
        return [_Stop(name, 0, (), (), ()) for name in dict.fromkeys(recording.tables["parameters"]["module"])]
    return [
        _Stop(module, call, (number,), (), ())
        for number, (module, call) in enumerate(zip(calls["module"], calls["call"], strict=True))
        if module in holders
    ]


def _passages(names: Sequence[str]) -> list[int]:
    seen: dict[str, int] = {}
    passages = []
    for name in names:
        passages.append(seen.get(name, 0))
        seen[name] = passages[-1] + 1
    return passages


def _at_step(table: Columns, key: str, step: int | None) -> dict[int, dict[str, Any]]:
    columns = list(table)
    return {
        values[columns.index(key)]: dict(zip(columns, values, strict=True))
        for values in zip(*table.values(), strict=True)
        if values[columns.index("step")] == step
    }


def _last(stats: Mapping[int, Mapping[str, Any]], rows: Sequence[int], column: str) -> float | None:
    value = stats[rows[-1]][column] if rows and rows[-1] in stats else None
    return None if value is None else float(value)


def _largest(values: Iterable[float | None]) -> float | None:
    """Return the largest value; NaN wins, because it must not hide behind a number."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return math.nan if any(math.isnan(value) for value in known) else max(known)


def _parameters_by_stop(
    recording: Recording, stops: Sequence[_Stop], step: int
) -> dict[int, tuple[float | None, float | None]]:
    """Return each block's (gradient norm, update/weight ratio) over its own parameters."""
    place = _places(stops)
    stats = _at_step(recording.tables["parameter_stats"], "parameter", step)
    members: dict[int, list[dict[str, Any]]] = {}
    for number, module in enumerate(recording.tables["parameters"]["module"]):
        stop = _enclosing(module, place)
        if stop is not None and number in stats:
            members.setdefault(stop, []).append(stats[number])
    return {
        stop: (
            _joint_norm(row["grad_norm"] for row in rows),
            ratio(_joint_norm(row["update_norm"] for row in rows), _joint_norm(row["weight_norm"] for row in rows)),
        )
        for stop, rows in members.items()
    }


def _joint_norm(norms: Iterable[float | None]) -> float | None:
    known = [norm for norm in norms if norm is not None]
    return math.hypot(*known) if known else None


def _places(stops: Sequence[_Stop]) -> dict[str, int]:
    """Map every name a block answers to onto its first passage."""
    place: dict[str, int] = {}
    for number, stop in enumerate(stops):
        place.setdefault(stop.name, number)
    for number, stop in enumerate(stops):
        for label in stop.labels:
            place.setdefault(label, number)
    place.pop("", None)
    return place


def _enclosing(module: str, place: Mapping[str, int]) -> int | None:
    """Find the block that is this module or holds it, walking up the dotted name."""
    while module:
        if module in place:
            return place[module]
        module = module.rpartition(".")[0]
    return None


def _findings_by_stop(stops: Sequence[_Stop], findings: Sequence[Finding]) -> dict[int, list[Finding]]:
    place = _places(stops)
    passages = {(stop.name, stop.call): number for number, stop in enumerate(stops)}
    placed: dict[int, list[Finding]] = {}
    for finding in findings:
        first = _enclosing(finding.module, place)
        if first is None:
            # A site is named "layers.0 + attn": its block is what stands before the sign.
            first = _enclosing(finding.module.partition(" + ")[0], place)
        if first is not None:
            stop = passages.get((stops[first].name, finding.call), first)
            placed.setdefault(stop, []).append(finding)
    return placed
