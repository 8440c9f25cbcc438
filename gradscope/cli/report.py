"""`gradscope report run.json`: render a saved run again; no torch needed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradscope.cli.debugging import remember_debug
from gradscope.cli.reported import print_run

HELP = """
Show a saved run again, in any format. Needs no torch.

The run is a .json or .json.gz file from [cyan]gradscope inspect TARGET -o run.json[/], or an HTML report, which carries
its run inside.
"""
EXAMPLES = (
    "gradscope report run.json",
    "gradscope report run.json --html report.html",
    "gradscope report report.html --output-format json",
)


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="run.json, run.json.gz or report.html")],
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the HTML report.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Save the run again, as .json or .json.gz.")
    ] = None,
    output_format: Annotated[
        str, typer.Option(help="What to print: full, concise, json, github, sarif, junit, markdown or gitlab.")
    ] = "full",
    output_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write that to a file instead of the terminal.")
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="List every block, addition and finding, not only the worst.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", callback=remember_debug, help="Show the traceback of an error.")
    ] = False,
) -> int:
    """Judge the saved run with today's rules and print it."""
    return print_run(run, html, output, output_format, output_file, show_all=show_all)
