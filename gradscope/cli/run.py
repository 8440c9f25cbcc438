"""`gradscope run script.py …`: watch a training script as it stands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gradscope.cli.debugging import remember_debug
from gradscope.cli.emit import write_text
from gradscope.cli.gate_settings import GateOptions, GateSettings, gate_settings
from gradscope.cli.options import MeasuringOptions
from gradscope.cli.request import configuration
from gradscope.cli.results import check_format, check_writable, note, show
from gradscope.cli.several import save_all
from gradscope.errors import EXIT_CLEAN, EXIT_ERROR, EXIT_FINDINGS, EXIT_INTERRUPTED, ConfigError
from gradscope.gate.outcome import Outcome, exit_code, judge
from gradscope.probe.settings import Level
from gradscope.record import Recording
from gradscope.report.formats.render import render_outcomes
from gradscope.rules.verdict import diagnose

HELP = """
Watch an unmodified training script for its first optimizer steps.

The script runs as `python script.py ...` would: its arguments, output and errors are its own. After --steps optimizer
steps it is stopped (or goes on with --continue) and the report follows on stderr, since stdout is the script's. The
exit code is the script's, or with --check the gate's.
"""
EXAMPLES = (
    "gradscope run train.py --lr 3e-4",
    "gradscope run --steps 50 --html report.html -m package.train --config small.yaml",
    "gradscope run --check --continue --every 100 train.py",
)
_GATE, _OUTPUT = "The gate", "Output"
_LEVELS: dict[str, Level] = {"params": "params", "default": "default", "deep": "deep"}


def run(
    script: Annotated[
        list[str] | None,
        typer.Argument(metavar="SCRIPT.PY | -m MODULE [ARGUMENTS]...", help="What to run, as python would."),
    ] = None,
    steps: Annotated[
        int, typer.Option(min=1, metavar="N", help="Stop after so many optimizer steps of every model.")
    ] = 10,
    keep_going: Annotated[
        bool, typer.Option("--continue", help="Let the script run to its end; only the first steps are watched.")
    ] = False,
    every: Annotated[
        int | None, typer.Option(min=1, metavar="K", help="Watch every K-th step instead of each.")
    ] = None,
    level: Annotated[
        str,
        typer.Option(metavar="NAME", help="params (compiled models stay compiled), default, or deep."),
    ] = "default",
    check: Annotated[
        bool, typer.Option("--check", rich_help_panel=_GATE, help="Exit as `gradscope check` does.")
    ] = False,
    select: Annotated[
        list[str] | None,
        typer.Option(metavar="CODES", rich_help_panel=_GATE, help="Codes or prefixes that count. Default: all."),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="CODES", rich_help_panel=_GATE, help="Codes or prefixes to ignore.")
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option(metavar="LEVEL", rich_help_panel=_GATE, help="error, warning or never. Default: error."),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=_GATE, help="Findings listed here are known and do not count."),
    ] = None,
    thresholds: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="CODE.NAME=N", rich_help_panel=_GATE, help="Set a rule's threshold."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", rich_help_panel=_OUTPUT, help="Write the HTML report.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", rich_help_panel=_OUTPUT, help="Save what was measured."),
    ] = None,
    output_format: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_OUTPUT,
            help="full, concise, json, github, sarif, junit, markdown or gitlab.",
        ),
    ] = "full",
    output_file: Annotated[
        Path | None, typer.Option(metavar="FILE", rich_help_panel=_OUTPUT, help="Write the report there.")
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", rich_help_panel=_OUTPUT, help="List everything, not only the worst.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", rich_help_panel=_OUTPUT, help="Read settings from this file.")
    ] = None,
    debug: Annotated[
        bool,
        typer.Option("--debug", callback=remember_debug, rich_help_panel=_OUTPUT, help="Show tracebacks of gradscope."),
    ] = False,
) -> int:
    """Run the script, then report on every model it trained."""
    if not script:
        raise ConfigError("nothing to run.", rule="Name a script or -m MODULE.", hint="gradscope run train.py")
    if level not in _LEVELS:
        raise ConfigError(f"--level {level} is not known.", rule="It is params, default or deep.")
    check_format(output_format)
    check_writable(html, output, output_file)
    measuring = MeasuringOptions(thresholds=thresholds, config=config)
    options = GateOptions(select=tuple(select or ()), ignore=tuple(ignore or ()), fail_on=fail_on, baseline=baseline)
    settings = gate_settings(options, measuring, configuration(measuring))

    from gradscope.probe.scripts.script import ScriptOptions, run_script

    done = run_script(script, ScriptOptions(steps, keep_going, every, _LEVELS[level]))
    outcomes = [_outcome(name, recording, settings) for name, recording in done.recordings.items()]
    save_all(outcomes, output, html)
    _show(outcomes, output_format, output_file, show_all=show_all)
    if not outcomes:
        note(f"gradscope: no training step was seen, so there is nothing to report: {done.seen}")
    if done.interrupted:
        return EXIT_INTERRUPTED
    if not check:
        return done.exit_code
    if done.exit_code != EXIT_CLEAN or not outcomes:
        return EXIT_ERROR
    return EXIT_FINDINGS if exit_code(outcomes) else EXIT_CLEAN


def _outcome(name: str, recording: Recording, settings: GateSettings) -> Outcome:
    return judge(
        name,
        recording,
        diagnose(recording, settings.thresholds),
        selection=settings.selection,
        fail_on=settings.fail_on,
        baseline=settings.baseline,
    )


def _show(outcomes: list[Outcome], output_format: str, output_file: Path | None, *, show_all: bool) -> None:
    """Print on stderr, set off by a blank line from what the script wrote, or write to a file."""
    if not outcomes:
        return
    if output_file is not None:
        show(outcomes, output_format, output_file, show_all=show_all)
        return
    sys.stdout.flush()
    write_text(sys.stderr, "\n" + render_outcomes(output_format, outcomes, sys.stderr, show_all=show_all))
