"""`gradscope inspect TARGET`: the main job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gradscope.cli.emit import emit
from gradscope.cli.options import MeasuringOptions, spread
from gradscope.cli.request import configuration, request_for, thresholds_for
from gradscope.errors import EXIT_CLEAN, EXIT_INTERRUPTED, ConfigError


@spread
def inspect(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="model.py, model.py:attr, pkg.mod:attr, builtin:NAME, timm:NAME, ...")
    ],
    measuring: MeasuringOptions,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write the report as one HTML file.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Also save what was measured (.json or .json.gz).")
    ] = None,
    output_format: Annotated[str, typer.Option(help="What to print: full or json.")] = "full",
    output_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it to a file instead of the terminal.")
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="List every block, addition and finding, not the worst.")] = False,
    list_targets: Annotated[
        bool, typer.Option("--list-targets", help="Only list what could be inspected in a file.")
    ] = False,
) -> int:
    """Find out whether gradients vanish or explode in a model, where, why, and what to change.

    The model is loaded, its inputs and loss are found, a few steps are taken and watched. The report names how each
    was found.

    Examples:

      gradscope inspect model.py
      gradscope inspect builtin:post-ln -a layers=48
      gradscope inspect model.py:build --inputs data.py:batch --html report.html
    """
