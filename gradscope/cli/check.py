"""`gradscope check TARGET… | run.json…`: the same judged as a gate."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from gradscope.cli.emit import emit
from gradscope.cli.gate_settings import GateOptions, GateSettings, gate_settings
from gradscope.cli.gating import Judged, judge_all
from gradscope.cli.options import MeasuringOptions, spread
from gradscope.cli.request import configuration, request_for
from gradscope.cli.results import check_format, check_writable, note, show
from gradscope.cli.several import check_folders, parse_also, save_all, show_also
from gradscope.cli.shown_settings import shown_settings
from gradscope.cli.step_summary import append_step_summary
from gradscope.config import Config
from gradscope.errors import EXIT_CLEAN, EXIT_ERROR, EXIT_INTERRUPTED, ConfigError
from gradscope.gate.baseline import known, stale, write_baseline
from gradscope.gate.outcome import Outcome, exit_code

HELP = """
Fail when a model's gradient flow is broken: the gate for CI.

Judges targets, targets declared in the configuration by name, or saved runs (which needs no torch). Exit code 0: clean.
1: findings at or above --fail-on. 2: anything else, so a model that crashes is never taken for a finding.
"""
EXAMPLES = (
    "gradscope check model.py --select GS1,GS2 --fail-on warning",
    "gradscope check model.py --against main.json",
    "gradscope check run.json --output-format github",
)
_GATE, _OUTPUT = "The gate", "Output"


@spread
def check(
    measuring: MeasuringOptions,
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TARGET|RUN.JSON]...", help="What to check; all declared targets by default."),
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(metavar="CODES", rich_help_panel=_GATE, help="Codes or prefixes that count. Default: all."),
    ] = None,
    extend_select: Annotated[
        list[str] | None,
        typer.Option(metavar="CODES", rich_help_panel=_GATE, help="More codes that count, beside those configured."),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="CODES", rich_help_panel=_GATE, help="Codes or prefixes to ignore.")
    ] = None,
    fail_on: Annotated[
        str | None, typer.Option(rich_help_panel=_GATE, help="error, warning or never. Default: error.")
    ] = None,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", rich_help_panel=_GATE, help="Exit with 0 even where there are findings.")
    ] = False,
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=_GATE, help="Findings listed here are known and do not count."),
    ] = None,
    write_baseline_to: Annotated[
        Path | None,
        typer.Option("--write-baseline", metavar="FILE", rich_help_panel=_GATE, help="Accept today's findings."),
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN.JSON", rich_help_panel=_GATE, help="Also fail where the profile got worse since."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, rich_help_panel=_GATE, help="Measure this many seeds; what most of them show counts."),
    ] = None,
    output_format: Annotated[
        str | None,
        typer.Option(rich_help_panel=_OUTPUT, help="full, concise, json, github, sarif, junit, markdown or gitlab."),
    ] = None,
    output_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=_OUTPUT, help="Write that to a file instead of the terminal."),
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMAT=FILE", rich_help_panel=_OUTPUT, help="Write it in this format too. Repeat for more."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=_OUTPUT,
            help="Save what was measured; a folder for several.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            rich_help_panel=_OUTPUT,
            help="Write the HTML report; a folder for several targets.",
        ),
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", rich_help_panel=_OUTPUT, help="List everything, not only the worst.")
    ] = False,
    show_settings: Annotated[
        bool, typer.Option("--show-settings", rich_help_panel=_OUTPUT, help="Print the settings in force and stop.")
    ] = False,
) -> int:
    """Judge everything, print it, and return the gate's exit code."""
    config = configuration(measuring)
    check_writable(output_file, write_baseline_to)
    formats = parse_also(also or ())
    output_format = check_format(output_format or config.settings.get("output-format", "full"))
    settings = gate_settings(
        GateOptions(
            select=tuple(select or ()),
            extend_select=tuple(extend_select or ()),
            ignore=tuple(ignore or ()),
            fail_on=fail_on,
            baseline=baseline if write_baseline_to is None else None,
            against=tuple(against or ()),
            seeds=seeds,
        ),
        measuring,
        config if write_baseline_to is None else _without_baseline(config),
    )
    requests = [request_for(name, measuring, config) for name in _names(targets, config)]
    if show_settings:
        emit(shown_settings(requests, settings, config))
        return EXIT_CLEAN
    check_folders(len(requests), output, html)
    judged = judge_all(requests, settings)
    save_all(judged.outcomes, output, html)
    if write_baseline_to is not None:
        return _write_baseline(write_baseline_to, judged.outcomes, judged.num_failed)
    show(judged.outcomes, output_format, output_file, show_all=show_all, brief=True)
    show_also(judged.outcomes, formats)
    if output_format == "github":
        append_step_summary(judged.outcomes, os.environ.get("GITHUB_STEP_SUMMARY"))
    _tell_gate(judged.outcomes, settings)
    return _exit_code(judged, exit_zero=exit_zero)


def _names(targets: list[str] | None, config: Config) -> list[str]:
    names = list(targets or config.targets)
    if not names:
        raise ConfigError(
            "nothing to check.",
            rule="Name a target or a saved run, or declare targets under [tool.gradscope.targets.NAME].",
            hint="gradscope check model.py",
        )
    return names


def _without_baseline(config: Config) -> Config:
    settings = {key: value for key, value in config.settings.items() if key != "baseline"}
    return Config(config.path, settings, config.per_module_ignores, config.thresholds, config.targets)


def _write_baseline(path: Path, outcomes: tuple[Outcome, ...], num_failed: int) -> int:
    if num_failed:
        raise ConfigError(
            f"{num_failed} of the targets could not be judged; no baseline was written.",
            rule="A baseline lists the findings of all targets.",
        )
    entries = [
        known(outcome.recording.provenance.target, finding)
        for outcome in outcomes
        for finding in outcome.diagnosis.findings
        if finding.severity != "info"
    ]
    number = write_baseline(path, entries)
    note(f"wrote {path}: {number} known finding{'' if number == 1 else 's'}")
    return EXIT_CLEAN


def _tell_gate(outcomes: tuple[Outcome, ...], settings: GateSettings) -> None:
    """Say on stderr what the result alone does not show: known, ignored and stale entries."""
    found = [
        known(outcome.recording.provenance.target, finding)
        for outcome in outcomes
        for finding in (*outcome.diagnosis.findings, *outcome.known, *outcome.ignored)
    ]
    targets = [outcome.recording.provenance.target for outcome in outcomes]
    for entry in stale(settings.baseline, found, targets):
        place = f" {entry.module}" if entry.module else ""
        note(f"stale entry in {settings.baseline_file}: {entry.code}{place} of {entry.target} is no longer found")
    num_known = sum(len(outcome.known) for outcome in outcomes)
    if num_known:
        note(f"{num_known} known finding{'' if num_known == 1 else 's'} set aside by {settings.baseline_file}")


def _exit_code(judged: Judged, *, exit_zero: bool) -> int:
    if judged.interrupted:
        return EXIT_INTERRUPTED
    if judged.num_failed:
        return EXIT_ERROR
    code = EXIT_CLEAN if exit_zero else exit_code(judged.outcomes)
    partial = [outcome.name for outcome in judged.outcomes if outcome.recording.provenance.partial]
    if partial and code == EXIT_CLEAN:
        note(f"{', '.join(partial)}: the watching ended early, so that nothing found does not mean clean")
        return EXIT_ERROR
    return code
