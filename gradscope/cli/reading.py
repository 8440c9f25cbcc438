"""Reading a saved run: a recording, or an HTML report, which carries its recording."""

from __future__ import annotations

from pathlib import Path

from gradscope.record import Recording

_ENDINGS = (".json", ".json.gz", ".html", ".htm")


def is_recording(target: str) -> bool:
    """Say whether a target names a saved run rather than a model."""
    return target.lower().endswith(_ENDINGS) and ":" not in Path(target).name


def read_recording(path: Path) -> Recording:
    """Read a saved run.

    Raises:
        RecordError: It is missing, damaged or something else.
    """
    if path.suffix.lower() in (".html", ".htm"):
        from gradscope.report.html import read_back

        return read_back(path)
    return Recording.load(path)
