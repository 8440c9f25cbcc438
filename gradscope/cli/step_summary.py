"""`$GITHUB_STEP_SUMMARY`: the Markdown that GitHub shows on the page of a job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gradscope.cli.results import note
from gradscope.gate.outcome import Outcome
from gradscope.report.formats.markdown import markdown

MAX_BYTES = 1024 * 1024
"""What GitHub accepts for the summary of one step; more of it and the whole upload fails."""

_CUT = "\n\n(The summary was cut off here; the full report has everything.)\n"


def append_step_summary(outcomes: Sequence[Outcome], file: str | None) -> None:
    """Append the summary where GitHub wants it; outside of GitHub's runners there is no such file."""
    if not file or not outcomes:
        return
    data = markdown(outcomes).encode()
    if len(data) > MAX_BYTES:
        data = data[: MAX_BYTES - len(_CUT.encode())].decode(errors="ignore").encode() + _CUT.encode()
    try:
        with Path(file).open("ab") as summary:
            summary.write(data)
    except OSError as error:
        note(f"the step summary could not be written: {error}")
