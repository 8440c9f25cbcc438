"""The file a finding is shown at, for consumers that must have one."""

from __future__ import annotations

from pathlib import PurePosixPath

from gradscope.gate.outcome import Outcome
from gradscope.rules.finding import Finding


def source_path(outcome: Outcome, finding: Finding) -> str:
    """Return the culprit's file, else the file the target names, else the target itself; slashes forward, relative."""
    if finding.file:
        return _relative(finding.file)
    target = outcome.recording.provenance.target
    path, _, _ = target.partition(":")
    return _relative(path) if path.endswith((".py", ".pt2", ".json")) else _relative(target)


def _relative(path: str) -> str:
    slashed = PurePosixPath(path.replace("\\", "/"))
    return str(slashed.relative_to(slashed.anchor)) if slashed.is_absolute() else str(slashed)
