"""Measure a target as it was at another revision: in a worktree of its own, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gradscope.cli.request import Request
from gradscope.errors import ConfigError, GradscopeError
from gradscope.record import Recording


def measured_at(request: Request, revision: str) -> Recording:
    """Measure the target at a revision; the working tree is not touched.

    Raises:
        ConfigError: There is no repository or no such revision.
        GradscopeError: The target cannot be measured there; the message is the other process's own.
    """
    with _worktree(revision) as folder, tempfile.TemporaryDirectory() as results:
        file = Path(results, "run.json")
        # -P: our own package must not be taken from the other revision when that is a checkout of gradscope itself.
        command = [sys.executable, "-P", "-m", "gradscope", "inspect", *_words(request), "-o", str(file)]
        command += ["--output-format", "concise"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            told = done.stderr.strip().splitlines()
            reason = told[-1].removeprefix("error: ") if told else f"exit code {done.returncode}"
            raise GradscopeError(f"{request.target} cannot be measured at {revision}: {reason}")
        return Recording.load(file)


@contextmanager
def _worktree(revision: str) -> Iterator[Path]:
    """Check a revision out beside the working tree; yields the folder that matches the current one."""
    prefix = _git("rev-parse", "--show-prefix", hint="git init").strip()
    commit = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", hint="git log --oneline").strip()
    with tempfile.TemporaryDirectory() as parent:
        tree = Path(parent, "tree")
        _git("worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            yield tree / prefix
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*words: str, hint: str = "") -> str:
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ConfigError("--rev needs git, which is not installed.") from None
    if done.returncode != 0:
        told = " ".join(done.stderr.split()) or "no such revision"
        raise ConfigError(f"git {' '.join(words[:2])} failed: {told}.", hint=hint)
    return done.stdout


def _words(request: Request) -> list[str]:
    """Write a request as the command line that makes it."""
    words = [request.target]
    for key, value in request.arguments.items():
        words += ["-a", f"{key}={value!r}"]
    for key, value in request.settings.items():
        if key == "jacobian":
            words.append("--jacobian" if value else "--no-jacobian")
        elif key == "watch":
            words += ["--watch", ",".join(map(str, value))]
        else:
            words += [f"--{key}", str(value)]
    return words
