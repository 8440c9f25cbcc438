"""Measure a grid of networks and fit how their numbers depend on depth.

One cell is one target built with one choice of arguments from one seed, watched by the probe and judged by the rules.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from gradscope.errors import GradscopeError
from gradscope.experiments.running import Progress, silent
from gradscope.experiments.sweep_laws import LawReport, Row, fit_laws
from gradscope.experiments.sweep_log import append_row, read_log
from gradscope.probe.settings import ProbeSettings

KEPT_METRICS = (
    "decades",
    "excess_decades",
    "later_decades",
    "jacobian_anisotropy",
    "token_cosine",
    "later_token_cosine",
    "sample_cosine",
    "query_key_to_value_log10",
    "num_blocks",
    "num_residual_additions",
)
"""Headline metrics that a row keeps."""

DEFAULT_SETTINGS = ProbeSettings(num_steps=1, watched_steps=(0,))
"""A sweep looks at the start unless told otherwise: laws of depth are laws of initialisation."""


@dataclass(frozen=True)
class Cell:
    """One network to measure."""

    target: str
    arguments: Mapping[str, Any]
    seed: int

    @property
    def key(self) -> str:
        """What tells it from the others in a saved sweep."""
        return json.dumps([self.target, sorted(self.arguments.items()), self.seed], default=str)


@dataclass(frozen=True)
class SweepResult:
    """All rows, and the laws fitted to them.

    Attributes:
        target: What was swept.
        axes: The arguments that varied, with their values.
        rows: One per cell, in the grid's order.
        laws: What depends on depth how, per choice of the other arguments.
        notes: What could not be done, one sentence each.
        partial: Whether it was interrupted: rows are missing.
    """

    target: str
    axes: Mapping[str, Sequence[Any]]
    rows: tuple[Row, ...]
    laws: tuple[LawReport, ...]
    notes: tuple[str, ...] = field(default=())
    partial: bool = False

    def to_object(self) -> dict[str, Any]:
        """Return a JSON-ready object."""
        return {
            "format": "gradscope-sweep",
            "schema": 1,
            "target": self.target,
            "axes": {name: list(values) for name, values in self.axes.items()},
            "rows": [row.to_object() for row in self.rows],
            "laws": [law.to_object() for law in self.laws],
            "notes": list(self.notes),
            "partial": self.partial,
        }


def grid(target: str, axes: Mapping[str, Sequence[Any]], fixed: Mapping[str, Any], num_seeds: int) -> list[Cell]:
    """List the cells: every combination of the axes' values, from every seed."""
    choices = itertools.product(*axes.values())
    return [
        Cell(target, {**fixed, **dict(zip(axes, values, strict=True))}, seed)
        for values in choices
        for seed in range(num_seeds)
    ]


def sweep(
    target: str,
    axes: Mapping[str, Sequence[Any]],
    *,
    fixed: Mapping[str, Any] | None = None,
    num_seeds: int = 3,
    settings: ProbeSettings = DEFAULT_SETTINGS,
    num_workers: int = 1,
    log: Path | None = None,
    progress: Progress = silent,
) -> SweepResult:
    """Measure every cell of the grid and fit the laws.

    Args:
        target: Any target whose factory takes arguments.
        axes: Arguments and the values each is to take.
        fixed: Arguments that stay.
        num_seeds: Initialisations per choice.
        settings: How each network is watched.
        num_workers: Processes that measure at the same time, one thread each when more than one.
        log: A file to which each row is added as soon as it is there; rows found in it are not measured again.
        progress: Told of each row.

    Returns:
        Rows and laws. A cell whose network cannot be built or run has a row that says why. After Ctrl-C the rows that
        were measured, marked partial.

    Raises:
        GradscopeError: Not a single cell could be measured; the first cell's reason.
        KeyboardInterrupt: Ctrl-C before the first row.
    """
    cells = grid(target, axes, fixed or {}, num_seeds)
    done = read_log(log)
    missing = [cell for cell in cells if cell.key not in done]
    partial = False
    try:
        for number, (cell, row) in enumerate(_measured(missing, settings, num_workers), start=1):
            done[cell.key] = row
            append_row(log, cell.key, row)
            progress(_label(cell, axes), len(cells) - len(missing) + number, len(cells))
    except KeyboardInterrupt:
        partial = True
        if not any(cell.key in done for cell in cells):
            raise
    rows = tuple(done[cell.key] for cell in cells if cell.key in done)
    failed = [row for row in rows if row.error]
    if rows and len(failed) == len(rows):
        raise GradscopeError(str(failed[0].error), hint="gradscope inspect " + target)
    notes = [f"{len(failed)} of {len(rows)} networks could not be measured: {failed[0].error}"] if failed else []
    if partial:
        notes.append(f"Interrupted: {len(rows)} of {len(cells)} networks were measured." + (_GO_ON if log else ""))
    return SweepResult(target, dict(axes), rows, tuple(fit_laws(rows, list(axes))), tuple(notes), partial)


_GO_ON = " The same command goes on from there."


def _label(cell: Cell, axes: Mapping[str, Sequence[Any]]) -> str:
    varied = ", ".join(f"{name}={cell.arguments[name]}" for name in axes)
    return f"{varied} seed {cell.seed}".strip()


def _measured(cells: Sequence[Cell], settings: ProbeSettings, num_workers: int) -> Iterator[tuple[Cell, Row]]:
    if num_workers <= 1:
        for cell in cells:
            yield cell, measure_cell(cell, settings)
        return
    # Spawned, not forked: torch's threads do not survive a fork.
    with ProcessPoolExecutor(num_workers, mp_context=get_context("spawn"), initializer=_start_worker) as pool:
        waiting = {pool.submit(measure_cell, cell, settings): cell for cell in cells}
        try:
            for finished in as_completed(waiting):
                yield waiting[finished], finished.result()
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _start_worker() -> None:
    """Use one thread, and leave Ctrl-C to the process that collects the rows."""
    import signal

    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)


def measure_cell(cell: Cell, settings: ProbeSettings) -> Row:
    """Load, watch and judge one network."""
    from gradscope.probe import measure
    from gradscope.rules import diagnose
    from gradscope.target import load

    try:
        subject = load(cell.target, arguments=dict(cell.arguments), seed=cell.seed, mode=settings.mode)
        diagnosis = diagnose(measure(subject, replace(settings, seed=cell.seed)))
    except GradscopeError as error:
        return Row(dict(cell.arguments), cell.seed, None, {}, str(error))
    metrics = {name: diagnosis.metrics.get(name) for name in KEPT_METRICS}
    return Row(dict(cell.arguments), cell.seed, diagnosis.verdict, metrics, None)
