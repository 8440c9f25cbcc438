"""`gradscope run`: whose arguments, output and exit code are whose."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradscope.cli import script_command
from gradscope.cli.script_command import script_start
from gradscope.record import Recording

TRAIN = """
import sys
import torch
from torch import nn


def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    print("arguments", sys.argv[1:])
    for step in range(6):
        optimizer.zero_grad()
        loss = net(torch.ones(3, 4) * step).square().mean()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.17g}")
    sys.exit(7)


if __name__ == "__main__":
    main()
"""

VANISHING = TRAIN.replace(
    "nn.Tanh(),", "nn.Sigmoid(), *[nn.Sequential(nn.Linear(8, 8), nn.Sigmoid()) for _ in range(16)],"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gradscope.toml").write_text("")
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "deep.py").write_text(VANISHING.replace("    sys.exit(7)\n", ""))
    (tmp_path / "crash.py").write_text(TRAIN.replace("    sys.exit(7)", "    raise RuntimeError('no more data')"))
    (tmp_path / "idle.py").write_text("print('nothing to train')\n")
    return tmp_path


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)  # noqa: PLW1510


@pytest.mark.parametrize("module", [script_command])
def test_the_examples_in_the_documentation_hold(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "start"),
    [
        (["train.py", "--steps", "3"], 0),
        (["--steps", "3", "train.py"], 2),
        (["--steps=3", "train.py"], 1),
        (["--continue", "-m", "pkg.train", "-m", "x"], 1),
        (["-o", "run.json", "train.py", "-o", "other"], 2),
        (["--", "train.py"], 0),
        (["--continue"], 1),
        ([], 0),
    ],
)
def test_the_scripts_words_begin_at_the_script(words: list[str], start: int) -> None:
    assert script_start(words, frozenset({"--steps", "-o"})) == start


def test_the_script_is_as_it_is_without_us(folder: Path) -> None:
    alone = python(folder, "train.py", "--steps", "9", "-o", "mine")
    watched = python(
        folder, "-m", "gradscope", "run", "--continue", "-o", "run.json", "train.py", "--steps", "9", "-o", "mine"
    )
    assert watched.stdout == alone.stdout
    assert watched.returncode == alone.returncode == 7
    assert "Gradient" in watched.stderr
    assert "gradscope run --check train.py --steps 9 -o mine" in watched.stderr
    assert Recording.load(folder / "run.json").watched_steps == [0, 1, 2, 3, 4, 5]


def test_it_is_stopped_after_the_steps_wanted(folder: Path) -> None:
    done = python(folder, "-m", "gradscope", "run", "--steps", "2", "--output-format", "concise", "-m", "train")
    assert done.returncode == 0
    assert "step 1" in done.stdout
    assert "step 4" not in done.stdout
    assert "will-train" in done.stderr


@pytest.mark.parametrize(
    ("script", "options", "code"),
    [
        ("deep.py", ["--check"], 1),
        ("deep.py", ["--check", "--fail-on", "never"], 0),
        ("crash.py", [], 1),
        ("crash.py", ["--check"], 2),
        ("idle.py", ["--check"], 2),
        ("missing.py", ["--check"], 2),
    ],
)
def test_exit_codes(folder: Path, script: str, options: list[str], code: int) -> None:
    done = python(folder, "-m", "gradscope", "run", "--continue", "--output-format", "concise", *options, script)
    assert done.returncode == code, done.stderr
    if script == "crash.py":
        assert "RuntimeError: no more data" in done.stderr
    if script == "idle.py":
        assert "nothing to report" in done.stderr
