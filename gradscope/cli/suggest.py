"""`gradscope suggest TARGET`: remedies, tried on the model and ranked by what they measurably do."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradscope.cli.emit import emit
from gradscope.cli.measuring import loaded, probe_settings, require_torch
from gradscope.cli.options import MeasuringOptions, spread
from gradscope.cli.progress import showing_progress
from gradscope.cli.request import configuration, request_for, thresholds_for
from gradscope.cli.results import check_format, check_writable
from gradscope.errors import EXIT_CLEAN, EXIT_INTERRUPTED
from gradscope.gate.thresholds import split_thresholds
from gradscope.report.console import rendered

if TYPE_CHECKING:
    from gradscope.remedy import Suggestions

HELP = """
Try remedies on the model and rank them by what they measurably do.

Skips, norms in front of branches, scaled branches, other initial weights and activations are put on the loaded model
one after the other, each is measured as `inspect` measures, and all of it is taken off again. Your code is not changed;
the answer says how to change it.
"""
EXAMPLES = (
    "gradscope suggest model.py",
    "gradscope suggest builtin:post-ln -a layers=24",
    "gradscope suggest model.py --try skips --try rezero --output-format markdown",
)
_FORMATS = ("full", "json", "markdown")


@spread
def suggest(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The model to mend.")],
    measuring: MeasuringOptions,
    tried: Annotated[
        list[str] | None, typer.Option("--try", metavar="NAME", help="Only this remedy; may be given several times.")
    ] = None,
    output_format: Annotated[str, typer.Option(metavar="NAME", help="full, json or markdown.")] = "full",
    output_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write that to a file instead of the terminal.")
    ] = None,
) -> int:
    """Measure, try, rank, show."""
    check_format(output_format, _FORMATS)
    check_writable(output_file)
    found = _tried(target, measuring, tried or [])
    emit(_rendered(found, output_format, output_file), output_file)
    return EXIT_INTERRUPTED if found.partial else EXIT_CLEAN


def _tried(target: str, measuring: MeasuringOptions, names: list[str]) -> Suggestions:
    config = configuration(measuring)
    thresholds, _ = split_thresholds(thresholds_for(measuring, config))
    request = request_for(target, measuring, config)
    settings = probe_settings(request)
    require_torch()
    with showing_progress(f"loading {request.name}") as progress, redirect_stdout(sys.stderr):
        from gradscope.remedy import REMEDIES, find
        from gradscope.remedy import suggest as try_remedies

        remedies = [find(name) for name in names] or list(REMEDIES)
        subject = loaded(request, settings)
        return try_remedies(subject, settings, remedies=remedies, thresholds=thresholds, progress=progress)


def _rendered(found: Suggestions, output_format: str, file: Path | None) -> str:
    from gradscope.cli.suggest_page import draw_suggestions, suggestions_markdown

    if output_format == "json":
        return json.dumps(found.to_object(), indent=2, allow_nan=False) + "\n"
    if output_format == "markdown":
        return suggestions_markdown(found)
    return rendered(lambda console: draw_suggestions(found, console), None if file is not None else sys.stdout)
