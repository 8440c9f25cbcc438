"""`gradscope experiment NAME`: the classic experiments, really trained."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradscope.cli.debugging import remember_debug
from gradscope.cli.emit import emit
from gradscope.cli.experiment_page import draw_experiment, experiment_markdown
from gradscope.cli.progress import showing_progress
from gradscope.cli.results import check_format, check_writable, note
from gradscope.errors import EXIT_CLEAN, EXIT_INTERRUPTED
from gradscope.experiments.catalog import EXPERIMENTS, find
from gradscope.experiments.result import ExperimentResult
from gradscope.report.console import rendered
from gradscope.report.terminal.layout import draw_note

HELP = """
Run a classic experiment on skips and norms, and judge what is written about it.

Each experiment trains or measures small models on this machine and judges published claims by its numbers: holds, does
not hold, depends. Without a name the experiments are listed.
"""
EXAMPLES = (
    "gradscope experiment",
    "gradscope experiment residual --quick",
    "gradscope experiment --all -o results.json --output-format markdown",
)
_FORMATS = ("full", "json", "markdown")


def experiment(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Which to run.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Run all of them.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="The short form: fewer seeds, steps and depths.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Save the results as JSON.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write one HTML page with all that was run.")
    ] = None,
    output_format: Annotated[str, typer.Option(metavar="NAME", help="full, json or markdown.")] = "full",
    output_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write that to a file instead of the terminal.")
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", callback=remember_debug, help="Show the traceback of an error.")
    ] = False,
) -> int:
    """Run the named experiments, or list them."""
    check_format(output_format, _FORMATS)
    check_writable(output, html, output_file)
    wanted = [found.name for found in EXPERIMENTS] if every else [find(name).name for name in names or ()]
    if not wanted:
        emit(rendered(_draw_list, sys.stdout))
        return EXIT_CLEAN
    results = _run(wanted, quick=quick)
    partial = len(results) < len(wanted)
    if output is not None:
        emit(_json(results), output)
        note(f"saved {output}")
    if html is not None:
        _write_page(results, html)
        note(f"wrote {html}")
    emit(_rendered(results, output_format, output_file), output_file)
    return EXIT_INTERRUPTED if partial else EXIT_CLEAN


def _run(names: list[str], *, quick: bool) -> list[ExperimentResult]:
    """Run them one after the other; after Ctrl-C those that were finished."""
    from gradscope.experiments import run

    results: list[ExperimentResult] = []
    for place, name in enumerate(names, start=1):
        counted = f" ({place} of {len(names)})" if len(names) > 1 else ""
        try:
            with showing_progress(f"experiment {name}{counted}") as progress:
                results.append(run(name, quick, progress))
        except KeyboardInterrupt:
            if not results:
                raise
            note(f"interrupted: {len(results)} of {len(names)} experiments were run")
            return results
    return results


def _write_page(results: list[ExperimentResult], file: Path) -> None:
    from gradscope.report.html.experiment import experiments_page, write_experiment
    from gradscope.report.html.pages import write_page

    if len(results) == 1:
        write_experiment(results[0].to_object(), file)
        return
    write_page(experiments_page([result.to_object() for result in results]), file)


def _rendered(results: list[ExperimentResult], output_format: str, file: Path | None) -> str:
    if output_format == "json":
        return _json(results)
    if output_format == "markdown":
        return "\n".join(experiment_markdown(result) for result in results)

    def draw(console: Console) -> None:
        for number, result in enumerate(results):
            if number:
                console.print()
            draw_experiment(result, console)

    return rendered(draw, None if file is not None else sys.stdout)


def _json(results: list[ExperimentResult]) -> str:
    objects = [result.to_object() for result in results]
    return json.dumps(objects[0] if len(objects) == 1 else objects, indent=2, allow_nan=False) + "\n"


def _draw_list(console: Console) -> None:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="cyan")
    grid.add_column(overflow="fold")
    grid.add_column(no_wrap=True, justify="right", style="dim")
    for found in EXPERIMENTS:
        text = Text(found.title).append(f"\n{found.question}", style="dim")
        grid.add_row(found.name, text, f"{found.minutes:g} min")
    console.print(Padding(grid, (0, 0, 0, 0)))
    console.print()
    draw_note(console, "gradscope experiment NAME runs one; --quick takes some seconds.")
