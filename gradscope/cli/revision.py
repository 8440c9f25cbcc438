"""Measure a target as it was at another revision: in a worktree of its own, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import gradscope
from gradscope.cli.request import Request
from gradscope.errors import ConfigError, GradscopeError
from gradscope.record import Recording


@dataclass(frozen=True)
class OtherTree:
    """The repository at another revision, checked out beside the working tree.

    Attributes:
        root: The working tree.
        tree: The other one.
        revision: What the user called it.
    """

    root: Path
    tree: Path
    revision: str

    @property
    def folder(self) -> Path:
        """The other tree's counterpart of the current folder; its root where it has none."""
        return self.counterpart(Path.cwd()) or self.tree

    def counterpart(self, path: Path) -> Path | None:
        """Return the same place in the other tree; None where it does not exist there or is not in the repository."""
        place = path.resolve()
        if not place.is_relative_to(self.root):
            return None
        other = self.tree / place.relative_to(self.root)
        return other if other.exists() else None

    def word(self, written: str, *, required: bool = False) -> str:
        """Return a FILE or FILE:NAME with its file in the other tree; a file git does not know is taken from here.

        Args:
            written: What the user wrote; anything that names no file is returned as it is.
            required: The file must exist at the revision: it is what is compared.

        Raises:
            ConfigError: It is required and does not.
        """
        name, sign, attribute = written.partition(":")
        if not Path(name).is_file():
            return written
        other = self.counterpart(Path(name))
        if other is not None:
            return os.path.relpath(other, self.folder) + sign + attribute
        if required:
            raise ConfigError(f"{name} does not exist at {self.revision}.", hint="git log --oneline -- " + name)
        return f"{Path(name).resolve()}{sign}{attribute}"

    @property
    def python_path(self) -> str:
        """Where the other process looks for modules: in the other tree, not in this one, but for gradscope itself."""
        own = Path(gradscope.__file__).resolve().parents[1]
        entries = [Path(entry or ".").resolve() for entry in sys.path]
        moved = [other for entry in entries if entry != own and (other := self.counterpart(entry))]
        given = [Path(entry).resolve() for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        kept = [entry for entry in given if entry == own or not entry.is_relative_to(self.root)]
        return os.pathsep.join(map(str, (*moved, *kept)))


def measured_at(request: Request, revision: str) -> Recording:
    """Measure the target at a revision; the working tree is not touched.

    Raises:
        ConfigError: There is no repository, no such revision, or no such file in it.
        GradscopeError: The target cannot be measured there; the message is the other process's own.
    """
    with _worktree(request, revision) as other, tempfile.TemporaryDirectory() as results:
        file = Path(results, "run.json")
        # -P: our own package must not be taken from the other revision when that is a checkout of gradscope itself.
        command = [sys.executable, "-P", "-m", "gradscope", "inspect", *_words(request, other), "-o", str(file)]
        command += ["--output-format", "concise"]
        environment = {**os.environ, "PYTHONPATH": other.python_path}
        done = subprocess.run(
            command, cwd=other.folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            told = done.stderr.strip().splitlines()
            reason = told[-1].removeprefix("error: ") if told else f"exit code {done.returncode}"
            raise GradscopeError(f"{request.target} cannot be measured at {revision}: {reason}")
        return Recording.load(file)


@contextmanager
def _worktree(request: Request, revision: str) -> Iterator[OtherTree]:
    """Check a revision of the target's repository out beside the working tree."""
    file = Path(request.target.partition(":")[0])
    where = file.resolve().parent if file.is_file() else Path.cwd()
    root = Path(_git(where, "rev-parse", "--show-toplevel", hint="git init").strip())
    commit = _git(where, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", hint="git log --oneline").strip()
    with tempfile.TemporaryDirectory() as parent:
        tree = Path(parent).resolve() / "tree"
        _git(where, "worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            yield OtherTree(root.resolve(), tree, revision)
        finally:
            _git(where, "worktree", "remove", "--force", str(tree))


def _git(folder: Path, *words: str, hint: str = "") -> str:
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ConfigError("--rev needs git, which is not installed.") from None
    if done.returncode != 0:
        told = " ".join(done.stderr.split()) or "no such revision"
        raise ConfigError(f"git {' '.join(words[:2])} failed: {told}.", hint=hint)
    return done.stdout


_FILES = ("inputs", "loss", "weights")
"""Settings that may name a file."""


def _words(request: Request, other: OtherTree) -> list[str]:
    """Write a request as the command line that makes it, its files in the other tree."""
    words = [other.word(request.target, required=True)]
    for key, value in request.arguments.items():
        words += ["-a", f"{key}={value!r}"]
    for key, value in request.settings.items():
        if key == "jacobian":
            words.append("--jacobian" if value else "--no-jacobian")
        elif key == "watch":
            words += ["--watch", ",".join(map(str, value))]
        else:
            words += [f"--{key}", other.word(str(value)) if key in _FILES else str(value)]
    return words
