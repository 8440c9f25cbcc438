"""A saved run, shown and written again."""

from __future__ import annotations

from pathlib import Path

from gradscope.cli.reading import read_recording
from gradscope.cli.results import check_format, check_writable, save, show
from gradscope.errors import EXIT_CLEAN
from gradscope.gate.outcome import Outcome
from gradscope.rules.verdict import diagnose


def print_run(
    run: Path,
    html: Path | None = None,
    output: Path | None = None,
    output_format: str = "full",
    output_file: Path | None = None,
    *,
    show_all: bool = False,
) -> int:
    """Read a run, write what is asked for, show it, and return the exit code."""
    check_format(output_format)
    check_writable(html, output, output_file)
    recording = read_recording(run)
    diagnosis = diagnose(recording)
    save(recording, diagnosis, output, html)
    show([Outcome(str(run), recording, diagnosis)], output_format, output_file, show_all=show_all)
    return EXIT_CLEAN
