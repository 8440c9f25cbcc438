"""The file a finding is shown at, for consumers that must have one."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from gradscope.gate.outcome import Outcome
from gradscope.rules.finding import Finding


def source_path(outcome: Outcome, finding: Finding) -> str:
    """Return the culprit's file, else the file the target names, else the target itself; slashes forward, relative."""
    if finding.file:
        return repository_path(finding.file)
    target = outcome.recording.provenance.target
    path, _, _ = target.partition(":")
    return repository_path(path) if path.endswith((".py", ".pt2", ".json")) else _relative(target)


def repository_path(file: str) -> str:
    """Return a file as its repository names it: a recording names it from the folder the check runs in.

    The root is GITHUB_WORKSPACE or CI_PROJECT_DIR; where neither holds this folder, the path is left as it is.
    """
    root = os.environ.get("GITHUB_WORKSPACE") or os.environ.get("CI_PROJECT_DIR")
    here = Path.cwd().resolve()
    if not root or not here.is_relative_to(Path(root).resolve()):
        return _relative(file)
    folder = here.relative_to(Path(root).resolve()).as_posix()
    return _relative(file if folder == "." else f"{folder}/{file}")


def _relative(path: str) -> str:
    slashed = PurePosixPath(path.replace("\\", "/"))
    return str(slashed.relative_to(slashed.anchor)) if slashed.is_absolute() else str(slashed)
