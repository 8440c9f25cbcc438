"""What every command that judges does with its results: save, write the page, print."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gradscope.cli.emit import emit, write_text
from gradscope.config import check_choice, nearest
from gradscope.errors import ConfigError, RecordError
from gradscope.gate.outcome import Outcome
from gradscope.record import Recording
from gradscope.report.formats.render import render_outcomes
from gradscope.report.names import visible
from gradscope.rules.finding import Diagnosis


def check_format(name: str, formats: Sequence[str] = ()) -> str:
    """Refuse an unknown output format before anything is measured.

    Args:
        name: What was asked for.
        formats: What a command can write, where that is not a judgement.

    Raises:
        ConfigError: It is none of them.
    """
    if not formats:
        return check_choice("output-format", name, "--")
    if name not in formats:
        raise ConfigError(f"--output-format {name} is not known.", rule=nearest(name, formats))
    return name


def check_writable(*files: Path | None) -> None:
    """Refuse a file that cannot be written before anything is measured.

    Raises:
        RecordError: Its folder does not exist, or it is a folder itself.
    """
    for file in files:
        if file is not None and (not file.parent.is_dir() or file.is_dir()):
            what = "it is a folder" if file.is_dir() else f"there is no folder {file.parent}"
            raise RecordError(f"cannot write {file}: {what}.")


def save(recording: Recording, diagnosis: Diagnosis, output: Path | None, html: Path | None) -> None:
    """Write the recording and the page, where asked for, and say on stderr where they are."""
    if output is not None:
        recording.save(output)
        note(f"saved {output}")
    if html is not None:
        from gradscope.report.html import write

        write(recording, diagnosis, html)
        note(f"wrote {html}")


def show(
    outcomes: Sequence[Outcome],
    output_format: str,
    output_file: Path | None,
    *,
    show_all: bool = False,
    brief: bool = False,
) -> None:
    """Print the outcomes, or write them to a file."""
    stream = None if output_file is not None else sys.stdout
    emit(render_outcomes(output_format, outcomes, stream, show_all=show_all, brief=brief), output_file)


def note(text: str) -> None:
    """Tell the user something beside the result, on stderr."""
    write_text(sys.stderr, f"{visible(text)}\n")
