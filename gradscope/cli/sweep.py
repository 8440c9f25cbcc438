"""`gradscope sweep TARGET -a layers=6,12,24,48`: a grid of arguments, and how the gradient depends on depth."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gradscope.cli.axes import parse_axes
from gradscope.cli.emit import emit
from gradscope.cli.measuring import probe_settings, require_torch
from gradscope.cli.options import MeasuringOptions, spread
from gradscope.cli.progress import showing_progress
from gradscope.cli.request import configuration, request_for
from gradscope.cli.results import check_format, check_writable, note
from gradscope.cli.sweep_page import draw_sweep, sweep_markdown
from gradscope.errors import EXIT_CLEAN, EXIT_INTERRUPTED, ConfigError
from gradscope.experiments.sweep import SweepResult
from gradscope.experiments.sweep import sweep as run_sweep
from gradscope.report.console import rendered

HELP = """
Measure a grid of models and fit how the gradient depends on depth, and where it will break.

Arguments with several values span the grid. Each cell is measured at its initialisation from several seeds; the law is
fitted by comparing models of it, with intervals, and says where the data do not allow one.
"""
EXAMPLES = (
    "gradscope sweep builtin:post-ln -a layers=6,12,24,48",
    "gradscope sweep model.py:build -a depth=4,8,16,32 -a norm=layer,rms --seeds 5 --html sweep.html",
    "gradscope sweep builtin:no-residual -a layers=6,12,24 --workers 2 --resume sweep.jsonl",
)
_FORMATS = ("full", "json", "markdown")
_UNUSED = ("inputs", "loss", "input", "weights")
"""Settings of a single target that a grid has no use for."""


@spread
def sweep(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A target whose factory takes arguments.")],
    measuring: MeasuringOptions,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Initialisations of each cell.")] = 3,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Processes that measure at the same time.")] = 1,
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep rows in this file and measure only what is not in it.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write one HTML page.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Save rows and laws as JSON.")
    ] = None,
    output_format: Annotated[str, typer.Option(metavar="NAME", help="full, json or markdown.")] = "full",
    output_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write that to a file instead of the terminal.")
    ] = None,
) -> int:
    """Measure the grid and report on it."""
    check_format(output_format, _FORMATS)
    check_writable(html, output, output_file, resume)
    result = _measured(target, measuring, seeds, workers, resume)
    if output is not None:
        emit(_json(result), output)
        note(f"saved {output}")
    if html is not None:
        from gradscope.cli.sweep_html import write_sweep_page

        write_sweep_page(result, html)
        note(f"wrote {html}")
    emit(_rendered(result, output_format, output_file), output_file)
    return EXIT_INTERRUPTED if result.partial else EXIT_CLEAN


def _measured(target: str, measuring: MeasuringOptions, seeds: int, workers: int, resume: Path | None) -> SweepResult:
    axes, fixed = parse_axes(measuring.argument or ())
    if not axes:
        raise ConfigError("there is nothing to sweep.", rule="Give an argument several values.", hint=EXAMPLES[0])
    request = request_for(target, replace(measuring, argument=None), configuration(measuring))
    unused = [key for key in _UNUSED if key in request.settings]
    if unused:
        raise ConfigError(f"sweep has no use for '{unused[0]}'.", rule="The factory's own inputs and loss are used.")
    if "steps" not in request.settings and "watch" not in request.settings:
        request = replace(request, settings={**request.settings, "steps": 1})  # laws of depth are laws of the start
    require_torch()
    with showing_progress(f"sweep of {target}") as progress, redirect_stdout(sys.stderr):
        return run_sweep(
            request.target,
            axes,
            fixed={**request.arguments, **fixed},
            num_seeds=seeds,
            settings=probe_settings(request),
            num_workers=workers,
            log=resume,
            progress=progress,
        )


def _rendered(result: SweepResult, output_format: str, file: Path | None) -> str:
    if output_format == "json":
        return _json(result)
    if output_format == "markdown":
        return sweep_markdown(result)
    return rendered(lambda console: draw_sweep(result, console), None if file is not None else sys.stdout)


def _json(result: SweepResult) -> str:
    return json.dumps(result.to_object(), indent=2, allow_nan=False, default=str) + "\n"
