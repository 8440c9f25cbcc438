"""Run training scripts, bare and watched, and see what they print, write and return."""

import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch._dynamo

from gradscope.probe.scripts.script import ScriptOptions, run_script
from gradscope.record import Recording

assert torch._dynamo  # loaded here, once, and not in every fork by the first optimizer

SCRIPTS = Path(__file__).parent / "scripts"
ROOT = Path(__file__).parents[2]


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def forked(work, cwd, stdin=None):
    """Run a function in a fork of this process, which has torch loaded already: a new one would take seconds."""
    with tempfile.TemporaryDirectory() as folder:
        names = [Path(folder, name) for name in ("in", "out", "err")]
        names[0].write_text(stdin or "")
        sys.stdout.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads in this process, which the child does not need
            child = os.fork()
        if child == 0:
            _in_child(work, cwd, names)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return Done(code, names[1].read_text(), names[2].read_text())


def _in_child(work, cwd, names):
    code = 70
    try:
        for number, name in enumerate(names):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        warnings.resetwarnings()
        os.chdir(cwd)
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def bare(*argv, cwd=SCRIPTS, stdin=None):
    """Run a script as Python would."""

    def work():
        sys.argv = list(argv)
        sys.path.insert(0, str(cwd))
        runpy.run_path(str(Path(cwd, argv[0])), run_name="__main__")
        return 0

    return forked(work, cwd, stdin)


def python(*argv, cwd, stdin=None):
    """Run a script in a Python of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *argv], capture_output=True, text=True, cwd=cwd, env=environment, timeout=300, input=stdin,
        check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


def watched(folder, *argv, cwd=SCRIPTS, stdin=None, **options):
    def work():
        outcome = run_script(list(argv), ScriptOptions(**options))
        for name, recording in outcome.recordings.items():
            recording.save(folder / f"{name}.json")
        (folder / "outcome").write_text(json.dumps([outcome.stopped, outcome.interrupted]))
        return outcome.exit_code

    done = forked(work, cwd, stdin)
    recordings = {path.stem: Recording.load(path) for path in folder.glob("*.json")}
    outcome = json.loads((folder / "outcome").read_text()) if (folder / "outcome").exists() else None
    return done, recordings, outcome
