"""Files of several targets: each gets one of its own in a folder; and the same result in more than one format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gradscope.cli.results import check_format, check_writable, note, save, show
from gradscope.errors import ConfigError
from gradscope.gate.outcome import Outcome

_LONGEST_STEM = 80
"""Characters of a file name made from a target; file systems allow 255 bytes."""


def save_all(outcomes: Sequence[Outcome], output: Path | None, html: Path | None) -> None:
    """Save every recording and page: to the file for one target, to files of their own for several."""
    stems = file_stems([outcome.name for outcome in outcomes])
    several = len(outcomes) > 1
    for outcome, stem in zip(outcomes, stems, strict=True):
        recording_file = _own_file(output, stem, ".json", several=several)
        save(outcome.recording, outcome.diagnosis, recording_file, _own_file(html, stem, ".html", several=several))


def _own_file(wanted: Path | None, stem: str, ending: str, *, several: bool) -> Path | None:
    """Return the file of one target: in the folder, or beside the wanted file with the target's name in it."""
    if wanted is None:
        return None
    if wanted.is_dir():
        return wanted / f"{stem}{ending}"
    name, dot, endings = wanted.name.partition(".")
    return wanted.with_name(f"{name}-{stem}{dot}{endings}") if several else wanted


def check_folders(num_targets: int, *folders: Path | None) -> None:
    """Refuse one file for several targets; make a folder that is asked for by a trailing slash.

    Raises:
        ConfigError: It is a file.
    """
    for folder in folders:
        if folder is not None and num_targets > 1 and not folder.is_dir():
            raise ConfigError(
                f"{folder} is one file for {num_targets} targets.",
                rule="Each target is a recording of its own: name an existing folder.",
                hint=f"mkdir -p {folder.with_suffix('')}",
            )
        if folder is not None and not folder.is_dir():
            check_writable(folder)


def file_stems(names: Sequence[str]) -> list[str]:
    """Return a file name without ending per target, safe on every file system and different from each other.

    Examples:
        >>> file_stems(["models/net.py:build", "models/net.py:build", "???"])
        ['models-net.py-build', 'models-net.py-build-2', 'run']
    """
    stems: list[str] = []
    for name in names:
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:_LONGEST_STEM] or "run"
        number, unique = 1, stem
        while unique in stems:
            number += 1
            unique = f"{stem}-{number}"
        stems.append(unique)
    return stems


def parse_also(words: Sequence[str]) -> list[tuple[str, Path]]:
    """Parse `FORMAT=FILE` words.

    Raises:
        ConfigError: A word is something else, or the format is unknown.
    """
    parsed = []
    for word in words:
        name, sign, file = word.partition("=")
        if not sign or not file:
            what = f"--also {word} is not understood."
            raise ConfigError(what, rule="It is FORMAT=FILE.", hint="--also sarif=out.sarif")
        check_writable(Path(file))
        parsed.append((check_format(name.strip()), Path(file)))
    return parsed


def show_also(outcomes: Sequence[Outcome], also: Sequence[tuple[str, Path]]) -> None:
    """Write the outcomes in further formats."""
    for name, file in also:
        show(outcomes, name, file)
        note(f"wrote {file}")
