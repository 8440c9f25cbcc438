"""Run the user's code as itself: its folder importable, no stdin, no exit, its prints kept off our results."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NoReturn

from gradscope.errors import GradscopeError, TargetError
from gradscope.target.blame import raised

OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
"""Set while a target is loaded: nothing is downloaded unless the user's own code does it by other means."""


class StdinReadError(EOFError):
    """The user's code asked for input while it was being loaded."""


class StartsProcessesError(RuntimeError):
    """The user's code started a process by `spawn` while it was being loaded: its children would load it again."""


class _NoStdin(io.TextIOBase):
    """A standard input that says no."""

    def _refuse(self) -> NoReturn:
        raise StdinReadError("it reads standard input while being loaded")

    def read(self, size: int | None = -1) -> str:
        self._refuse()

    def readline(self, size: int | None = -1) -> str:  # type: ignore[override]  # bytes-or-str in typeshed
        self._refuse()

    def readable(self) -> bool:
        return True


@contextlib.contextmanager
def user_code(doing: str, folder: Path | None, kind: type[GradscopeError] = TargetError) -> Iterator[None]:
    """Run code of the user's inside, and turn whatever it raises into one clear error.

    Args:
        doing: What is going on, for the message: "importing model.py".
        folder: Put first on sys.path meanwhile.
        kind: The class of the error.
    """
    with surroundings(folder):
        try:
            yield
        except GradscopeError:
            raise
        except (StdinReadError, StartsProcessesError) as error:
            raise raised(error, doing, kind, hint='Put that part under `if __name__ == "__main__":`.') from error
        except SystemExit as error:
            code = f"sys.exit({error.code!r})" if error.code is not None else "sys.exit()"
            blamed = raised(error, doing, kind)
            what = f"{doing} called {code}."
            raise kind(
                what,
                rule=blamed.rule,
                file=blamed.file,
                line=blamed.line,
                hint='Put what runs the script under `if __name__ == "__main__":`, or watch it as it runs: '
                "gradscope run SCRIPT ARGUMENTS",
            ) from error
        except Exception as error:
            raise raised(error, doing, kind) from error


@contextlib.contextmanager
def surroundings(folder: Path | None) -> Iterator[None]:
    """Give the user's code its folder, no arguments and no stdin; take everything back afterwards."""
    saved = sys.argv, sys.stdin, list(sys.path), os.getcwd(), {key: os.environ.get(key) for key in OFFLINE}
    sys.argv, sys.stdin = sys.argv[:1], _NoStdin()
    if folder is not None:
        sys.path.insert(0, str(folder))
    os.environ.update(OFFLINE)
    try:
        with contextlib.redirect_stdout(sys.stderr), _no_spawning():
            yield
    finally:
        sys.argv, sys.stdin, path, cwd, environment = saved
        sys.path[:] = path
        os.chdir(cwd)
        for key, value in environment.items():
            os.environ.pop(key, None) if value is None else os.environ.update({key: value})


@contextlib.contextmanager
def _no_spawning() -> Iterator[None]:
    """Refuse to start processes that import what is being imported: they would wait for each other for ever."""
    start = BaseProcess.start

    def refusing(process: BaseProcess) -> None:
        if getattr(process, "_start_method", None) in ("spawn", "forkserver"):
            raise StartsProcessesError("it starts processes while being loaded")
        start(process)

    BaseProcess.start = refusing  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        BaseProcess.start = start  # type: ignore[method-assign]
