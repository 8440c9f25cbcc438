"""`github`: workflow commands that GitHub Actions turns into annotations, and the Markdown of the job summary.

Escaping and limits follow the workflow-command documentation: `%`, CR and LF are escaped in messages, `:` and `,` in
properties too; GitHub shows ten annotations of each kind per step and drops the rest without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradscope.gate.outcome import Outcome
from gradscope.report.formats.location import repository_path
from gradscope.report.formats.summary import counted
from gradscope.report.names import shown_module, visible
from gradscope.rules.finding import Finding, Severity

MAX_PER_KIND = 10
"""Annotations of one kind that GitHub shows per step; the last place is kept to say how many more there are."""

_COMMANDS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "notice"}


def github(outcomes: Sequence[Outcome]) -> str:
    """Render one workflow command per finding, errors first, within GitHub's limits."""
    return "".join(f"{line}\n" for line in _lines(outcomes))


def _lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for severity, command in _COMMANDS.items():
        found = [(o, f) for o in outcomes for f in o.diagnosis.findings if f.severity == severity]
        room = MAX_PER_KIND if len(found) <= MAX_PER_KIND else MAX_PER_KIND - 1
        for outcome, finding in found[:room]:
            yield _annotation(command, outcome, finding)
        if found[room:]:
            yield f"::{command} title=gradscope::{len(found) - room} more, listed in the log and in the job summary"
            for outcome, finding in found[room:]:
                yield _log_line(outcome, finding)
    for outcome in outcomes:
        yield _defused(f"{visible(outcome.name)}: {outcome.diagnosis.verdict}, {counted(outcome)}")


def _annotation(command: str, outcome: Outcome, finding: Finding) -> str:
    properties = {"title": f"{finding.code} {shown_module(finding.module, finding.call)}"}
    if finding.file:
        properties = {"file": repository_path(finding.file), "line": str(finding.line or 1), **properties}
    joined = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    message = f"{visible(finding.message)}\n{visible(finding.advice)}\n{visible(outcome.name)}"
    return f"::{command} {joined}::{_data(message)}"


def _log_line(outcome: Outcome, finding: Finding) -> str:
    where = shown_module(finding.module, finding.call)
    return _defused(f"{visible(outcome.name)}: {finding.code} {finding.severity} {where}: {visible(finding.message)}")


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(visible(text)).replace(":", "%3A").replace(",", "%2C")


def _defused(line: str) -> str:
    """Keep a plain log line from being read as a command: only a line that begins with `::` (or `##[`) is one."""
    return f" {line}" if line.startswith(("::", "##[")) else line
