"""The one list of output formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradscope.gate.outcome import Outcome
from gradscope.report.formats.concise import concise
from gradscope.report.formats.github import github
from gradscope.report.formats.gitlab import gitlab
from gradscope.report.formats.json import json_object
from gradscope.report.formats.junit import junit
from gradscope.report.formats.markdown import markdown
from gradscope.report.formats.sarif import sarif

Format = Callable[[Sequence[Outcome]], str]

PLAIN_FORMATS: dict[str, Format] = {
    "concise": concise,
    "json": json_object,
    "github": github,
    "sarif": sarif,
    "junit": junit,
    "markdown": markdown,
    "gitlab": gitlab,
}
"""Formats that are the same text wherever they go; `full` is drawn for the stream it goes to (full.py)."""
