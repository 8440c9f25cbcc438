"""`gradscope compare A B …`: targets, saved runs or revisions side by side."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from gradscope.cli.emit import emit
from gradscope.cli.measuring import measured
from gradscope.cli.options import MeasuringOptions, spread
from gradscope.cli.progress import showing_progress
from gradscope.cli.reading import is_recording, read_recording
from gradscope.cli.request import Request, configuration, request_for, thresholds_for
from gradscope.cli.results import check_format, check_writable, note
from gradscope.cli.revision import measured_at
from gradscope.errors import EXIT_CLEAN, ConfigError
from gradscope.gate import differences
from gradscope.gate.differences import Contender, Measured, Profiles, Spread
from gradscope.gate.seeds import agreed
from gradscope.gate.thresholds import split_thresholds
from gradscope.record import Recording, json_number
from gradscope.report.console import rendered
from gradscope.report.machine import to_object
from gradscope.report.measures import measure_words
from gradscope.report.numbers import brief
from gradscope.report.terminal.comparison import draw_comparison, letters
from gradscope.rules.verdict import diagnose

HELP = """
Compare models, saved runs or revisions side by side.

The first is what the others are judged against. With --seeds each target is measured several times, and a difference
counts only beyond their spread. With --rev a target is compared with what it was at another revision.
"""
EXAMPLES = (
    "gradscope compare builtin:post-ln builtin:pre-ln -a layers=24",
    "gradscope compare before.json after.json --html comparison.html",
    "gradscope compare model.py --rev main --seeds 3",
)
_FORMATS = ("full", "json")


@spread
def compare(
    targets: Annotated[list[str], typer.Argument(metavar="TARGET|RUN.JSON...", help="What to compare, two or more.")],
    measuring: MeasuringOptions,
    rev: Annotated[
        list[str] | None, typer.Option(metavar="REVISION", help="Compare with the target at this git revision.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Measure each target with so many seeds.")] = 1,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write one HTML page.")] = None,
    output_format: Annotated[str, typer.Option(metavar="NAME", help="full or json.")] = "full",
    output_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write that to a file instead of the terminal.")
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="List every block of the profiles.")] = False,
) -> int:
    """Measure or read everything, then show it side by side."""
    check_format(output_format, _FORMATS)
    check_writable(html, output_file)
    config = configuration(measuring)
    thresholds, _ = split_thresholds(thresholds_for(measuring, config))
    requests = [request_for(target, measuring, config) for target in targets]
    if len(requests) + len(rev or ()) < 2:  # noqa: PLR2004  # a pair
        raise ConfigError("there is nothing to compare with.", rule="Name two or more, or --rev.", hint=EXAMPLES[0])
    runs = [
        (f"{request.name} @ {name}", _at_revision(request, name, seeds)) for name in rev or () for request in requests
    ]
    runs += [(request.name, _now(request, seeds)) for request in requests]
    contenders = [_contender(name, recordings, thresholds) for name, recordings in runs]
    numbers, profiles = differences.measured(contenders), differences.profiles(contenders)
    if html is not None:
        _write_page(contenders, numbers, html)
        note(f"wrote {html}")
    if output_format == "json":
        text = json.dumps(_object(contenders, numbers, profiles), indent=2, allow_nan=False) + "\n"
    else:
        stream = None if output_file is not None else sys.stdout
        text = rendered(lambda c: draw_comparison(contenders, numbers, profiles, c, show_all=show_all), stream)
    emit(text, output_file)
    return EXIT_CLEAN


def _contender(name: str, recordings: Sequence[Recording], thresholds: dict[str, float]) -> Contender:
    diagnoses = tuple(diagnose(recording, thresholds) for recording in recordings)
    return Contender(name, tuple(recordings), diagnoses, agreed(diagnoses))


def _now(request: Request, num_seeds: int) -> list[Recording]:
    if is_recording(request.target):
        return [read_recording(Path(request.target))]
    return [measured(one) for one in _seeded(request, num_seeds)]


def _at_revision(request: Request, revision: str, num_seeds: int) -> list[Recording]:
    if is_recording(request.target):
        raise ConfigError(f"{request.target} is a saved run.", rule="--rev compares a target with its past.")
    with showing_progress(f"{request.name} at {revision}"):
        return [measured_at(one, revision) for one in _seeded(request, num_seeds)]


def _seeded(request: Request, num_seeds: int) -> list[Request]:
    seed = request.seed
    if num_seeds == 1:
        return [request]
    if seed is None:
        raise ConfigError("--seeds needs a seed to count from.", rule="Leave out --seed none.")
    return [replace(request, settings={**request.settings, "seed": seed + number}) for number in range(num_seeds)]


def _write_page(contenders: Sequence[Contender], numbers: Sequence[Measured], file: Path) -> None:
    from gradscope.report.html.comparison import Compared, Comparison, write_comparison
    from gradscope.report.html.panel import Column, Table

    models = [Compared(c.name, c.recordings[0], c.diagnosis, c.recordings) for c in contenders]
    rows = [
        (
            measure_words(row.name)[0],
            *(_cell(value, judged) for value, judged in zip(row.values, row.judgements, strict=True)),
        )
        for row in numbers
    ]
    columns = (Column("number"), *(Column(contender.name) for contender in contenders))
    write_comparison(Comparison(models, [Table("Differences from the first, with their spread", columns, rows)]), file)


def _cell(value: Spread | None, judged: str) -> str:
    if value is None:
        return "–"
    deviation = "" if value.deviation is None else f" ±{value.deviation:.1g}"
    return f"{brief(value.mean)}{deviation} {judged}".strip()


def _object(contenders: Sequence[Contender], numbers: Sequence[Measured], profiles: Profiles | None) -> dict[str, Any]:
    def number(value: Spread | None) -> dict[str, Any] | None:
        return None if value is None else {key: _json(item) for key, item in asdict(value).items()}

    return {
        "schema": 1,
        "runs": [
            {"id": letter, "name": c.name, "seeds": len(c.recordings), **to_object(c.recordings[0], c.diagnosis)}
            for letter, c in zip(letters(len(contenders)), contenders, strict=True)
        ],
        "differences": [
            {"metric": row.name, "values": [number(value) for value in row.values], "judgements": list(row.judgements)}
            for row in numbers
        ],
        "profiles": None
        if profiles is None
        else {
            "places": list(profiles.places),
            "by_name": profiles.by_name,
            "values": [[number(value) for value in row] for row in profiles.values],
        },
    }


def _json(value: float | None) -> float | str | None:
    return None if value is None else json_number(value)
