"""`gradscope inspect TARGET`: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradscope.cli.listing import list_targets_of
from gradscope.cli.measuring import measured
from gradscope.cli.options import MeasuringOptions, spread
from gradscope.cli.replicas import replicas
from gradscope.cli.request import configuration, request_for, thresholds_for
from gradscope.cli.results import check_format, check_writable, save, show
from gradscope.errors import EXIT_CLEAN, EXIT_INTERRUPTED
from gradscope.gate.outcome import Outcome
from gradscope.gate.thresholds import split_thresholds
from gradscope.metrics.replicas import with_replicas
from gradscope.rules.verdict import diagnose

HELP = """
Find out whether gradients vanish or explode in a model, where, why, and what to change.

The model is loaded, its inputs and its loss are found, a few steps are taken and watched; the report says how each was
found. Nothing is downloaded, and the model's files are not changed.
"""
EXAMPLES = (
    "gradscope inspect model.py",
    "gradscope inspect model.py:build -a layers=48 --inputs data.py:batch",
    "gradscope inspect builtin:post-ln --html report.html",
    "gradscope inspect model.py --seeds 5",
)


@spread
def inspect(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="model.py, model.py:attr, pkg.mod:attr, builtin:NAME, hf:TYPE, timm:NAME, file.pt2"
        ),
    ],
    measuring: MeasuringOptions,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write the report as one HTML file.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Also save what was measured, as .json or .json.gz."),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Build the model from so many seeds for an interval of the decades.")
    ] = 1,
    output_format: Annotated[
        str, typer.Option(help="What to print: full, concise, json, github, sarif, junit, markdown or gitlab.")
    ] = "full",
    output_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write that to a file instead of the terminal.")
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="List every block, addition and finding, not only the worst.")
    ] = False,
    list_targets: Annotated[
        bool, typer.Option("--list-targets", help="Only list what could be inspected in the file.")
    ] = False,
) -> int:
    """Inspect one target; the exit code says only whether that worked."""
    check_format(output_format)
    check_writable(html, output, output_file)
    if list_targets:
        return list_targets_of(target)
    config = configuration(measuring)
    judged, _ = split_thresholds(thresholds_for(measuring, config))
    request = request_for(target, measuring, config)
    recording = measured(request)
    if seeds > 1 and not recording.provenance.partial:
        recording = with_replicas(recording, replicas(request, seeds))
    diagnosis = diagnose(recording, judged)
    save(recording, diagnosis, output, html)
    show([Outcome(request.name, recording, diagnosis)], output_format, output_file, show_all=show_all)
    return EXIT_INTERRUPTED if recording.provenance.partial else EXIT_CLEAN
