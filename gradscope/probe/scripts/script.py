"""Run a training script as it stands and watch what it trains."""

from __future__ import annotations

import builtins
import io
import os
import runpy
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, TracebackType

import torch
from torch import nn

from gradscope.errors import EXIT_INTERRUPTED, GradscopeError
from gradscope.probe.follow import Follower
from gradscope.probe.origin import provenance_of_loop
from gradscope.probe.scripts import runnable
from gradscope.probe.scripts.discover import Discovery
from gradscope.probe.scripts.runnable import check_module, check_script, holds_main
from gradscope.probe.settings import Level
from gradscope.probe.watching import calling
from gradscope.record import Recording

DEFAULT_STEPS = 10
"""Optimizer steps of a script that are watched before it is stopped."""
_PATIENCE = 5
"""A network that has taken so many times the steps wanted does not wait for a slower one beside it."""
_MOST_CALLS_AFTER = 2000
"""Calls of other modules (an evaluation, an average of the weights) that are let pass after the last step wanted."""


@dataclass(frozen=True)
class ScriptOptions:
    """How a script is watched.

    Attributes:
        num_steps: Stop after so many optimizer steps (of every model).
        keep_going: Let the script run to its end instead; without `every` only the first steps are watched.
        every: Watch every so many steps; None watches each.
        level: params (compiled models stay compiled), default or deep.
        root: The folder source files are shown relative to.
    """

    num_steps: int = DEFAULT_STEPS
    keep_going: bool = False
    every: int | None = None
    level: Level = "default"
    root: Path = field(default_factory=Path.cwd)

    def wants(self, number: int) -> bool:
        """Say whether a step is to be watched."""
        if self.keep_going and self.every is not None:
            return number % self.every == 0
        return number < self.num_steps and number % (self.every or 1) == 0


@dataclass(frozen=True)
class ScriptOutcome:
    """What came of a script.

    Attributes:
        recordings: One for each model, by the name of its variable or class; empty where none was trained.
        exit_code: What the script would have ended with; 0 where it was stopped, 130 after Ctrl-C.
        stopped: Whether it was stopped after the steps wanted.
        interrupted: Whether the user pressed Ctrl-C.
        seen: Where there are no recordings, what was seen instead.
    """

    recordings: dict[str, Recording]
    exit_code: int
    stopped: bool = False
    interrupted: bool = False
    seen: str = ""


class _StopScript(BaseException):
    """Leaves a script that has been watched long enough; no `except Exception` of the script may hold it up."""


class _Run:
    """One script being watched."""

    def __init__(self, argv: list[str], options: ScriptOptions) -> None:
        self.argv = argv
        self.options = options
        self.enough = False
        self._calls_after = 0
        self.discovery = Discovery(options.wants, self._ended, options.level, options.root)

    def run(self) -> ScriptOutcome:
        """Run the script."""
        exit_code, interrupted, failed = 0, False, False
        self.discovery.start()
        calling.inform(self._stop_if_enough)
        try:
            with _as_main(self.argv):
                _execute(self.argv)
        except _StopScript:
            pass
        except GradscopeError:
            raise
        except SystemExit as error:
            exit_code = _exit_code(error)
        except KeyboardInterrupt:
            exit_code, interrupted, failed = EXIT_INTERRUPTED, True, True
        except BaseException as error:  # whatever a script raises ends it with code 1, as Python itself would
            _print_traceback(error)
            exit_code, failed = 1, True
        finally:
            calling.dismiss(self._stop_if_enough)
            self.discovery.stop()
        recordings = self._recordings(failed)
        seen = "" if recordings else self.discovery.seen()
        return ScriptOutcome(recordings, exit_code, self.enough, interrupted, seen)

    def _ended(self, follower: Follower) -> None:
        counts = [other.number for other in self.discovery.followers.values() if other.number]
        wanted = self.options.num_steps
        if self.options.keep_going:
            if self.options.every is None and min(counts, default=0) >= wanted:
                self.discovery.rest()
            return
        # Not here, inside the optimizer, but when another step begins: the script may still print its loss.
        self.enough = bool(counts) and (min(counts) >= wanted or max(counts) >= _PATIENCE * wanted)

    def _stop_if_enough(self, module: nn.Module) -> None:
        """Leave at the forward that would begin another step: until then the script is still busy with the last."""
        if not self.enough:
            return
        self._calls_after += 1
        if self._calls_after > _MOST_CALLS_AFTER or (torch.is_grad_enabled() and self.discovery.follows(module)):
            # A thread of the script's ends without a word at a SystemExit, and at no other exception.
            raise _StopScript if threading.current_thread() is threading.main_thread() else SystemExit

    def _recordings(self, partial: bool) -> dict[str, Recording]:
        found = {}
        for name, follower in self.discovery.followers.items():
            follower.session.describe()
            tables = follower.session.tables
            if tables.columns["steps"]["step"]:
                target = " ".join(self.argv)
                found[name] = tables.recording(provenance_of_loop(follower.session, follower, target, partial=partial))
        return found


def run_script(argv: list[str], options: ScriptOptions | None = None) -> ScriptOutcome:
    """Run a script or module as `python argv...` would, and watch the models it trains.

    The script sees its own `sys.argv`, `__main__`, working directory and streams. Its errors are printed as Python
    prints them.

    Args:
        argv: `["train.py", "--lr", "0.1"]`, or `["-m", "package.train", ...]`.
        options: How to watch.

    Raises:
        TargetError: There is no such script or module, or nothing to run was named.
    """
    check_script(argv)
    _forget_in_children()
    return _Run(argv, options or ScriptOptions()).run()


def _execute(argv: list[str]) -> None:
    if argv[0] == "-m":
        check_module(argv[1])
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    elif holds_main(Path(argv[0])):
        runpy.run_path(argv[0], run_name="__main__")
    else:
        _execute_file(Path(argv[0]).absolute())


def _execute_file(path: Path) -> None:
    """Run a file as `__main__`; unlike `runpy.run_path` leave `sys.argv[0]` as the user wrote it."""
    with io.open_code(str(path)) as file:
        code = compile(file.read(), str(path), "exec")
    main = ModuleType("__main__")
    main.__dict__.update(__file__=str(path), __builtins__=builtins, __cached__=None)
    before = sys.modules["__main__"]
    sys.modules["__main__"] = main
    try:
        exec(code, main.__dict__)
    finally:
        sys.modules["__main__"] = before


@contextmanager
def _as_main(argv: list[str]) -> Iterator[None]:
    """Set `sys.argv` and `sys.path` as Python does for a script."""
    old_argv, old_path = sys.argv, sys.path[:]
    if argv[0] == "-m":
        sys.argv = ["-m", *argv[2:]]
        sys.path.insert(0, os.getcwd())
    else:
        sys.argv = list(argv)
        if not holds_main(Path(argv[0])):  # those are put on the path themselves
            sys.path.insert(0, str(Path(argv[0]).resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = old_argv, old_path


def _exit_code(error: SystemExit) -> int:
    """Return the exit code that Python would make of a SystemExit."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _print_traceback(error: BaseException) -> None:
    """Print what Python would print: without our frames, from the script's first line on."""
    trace: TracebackType | None = error.__traceback__
    own = (__file__, runnable.__file__, "<frozen runpy>", runpy.__file__)
    while trace is not None and trace.tb_frame.f_code.co_filename in own:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


_registered: list[bool] = []


def _forget_in_children() -> None:
    """See to it that worker processes forked by the script are not watched."""
    if not _registered and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=calling.forget_everything)
        _registered.append(True)
