"""Progress: on stderr, in a terminal only, and only for what takes longer than a second."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import suppress

CODE = """
import sys, time
from gradscope.cli.progress import showing_progress
with showing_progress("loading [b]net\\x1b[31m.py") as report:
    report("step 0 of [bold]blocks[/bold]", 1, 3)
    time.sleep(float(sys.argv[1]))
print("result")
"""


def in_terminal(seconds: float, **environment: str) -> tuple[str, str]:
    """Run with stderr as a terminal and stdout as a pipe; return both."""
    master, slave = pty.openpty()
    variables = {"TERM": "xterm", **os.environ, **environment}
    command = [sys.executable, "-c", CODE, str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=slave, env=variables, text=True) as process:
        os.close(slave)
        shown = b""
        with suppress(OSError):  # how Linux says that the other end is closed
            while part := os.read(master, 4096):
                shown += part
        out, _ = process.communicate(timeout=60)
    os.close(master)
    return out, shown.decode(errors="replace")


def test_a_short_wait_shows_nothing() -> None:
    assert in_terminal(0.2) == ("result\n", "")


def test_a_long_wait_shows_the_stage_and_clears_it() -> None:
    out, shown = in_terminal(1.6)
    assert out == "result\n"
    assert "step 0 of [bold]blocks[/bold]" in shown
    assert shown.rfind("\x1b[2K") > shown.rfind("step 0"), "the last thing written is the cleared line"


def test_a_dumb_terminal_is_left_alone() -> None:
    assert in_terminal(1.3, TERM="dumb") == ("result\n", "")


def test_without_a_terminal_nothing_is_shown() -> None:
    done = subprocess.run([sys.executable, "-c", CODE, "1.3"], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("result\n", "")
