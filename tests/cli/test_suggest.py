"""`gradscope suggest`: the table, the answer, formats and misuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import run

Capture = pytest.CaptureFixture[str]
COMMAND = ["suggest", "builtin:mlp-residual", "-a", "layers=40", "--steps", "2", "--no-jacobian"]


def test_the_best_comes_first_and_says_how(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = run(capsys, *COMMAND, "--try", "lower-lr", "--try", "branch-scale")
    assert done.code == 0, done.err
    names = [line.split()[0] for line in done.out.splitlines() if line.startswith("  ") and line.split()]
    assert names.index("as") < names.index("branch-scale") < names.index("lower-lr")
    assert "x = x + f(x) / math.sqrt(num_branches)" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_json_and_markdown(capsys: Capture) -> None:
    content = json.loads(run(capsys, *COMMAND, "--try", "skips", "--try", "rezero", "--output-format", "json").out)
    (trial,) = content["trials"]
    assert (trial["remedy"], trial["helps"], trial["places"]) == ("rezero", True, 40)
    assert content["not_tried"] == [
        {"remedy": "skips", "why": "there are no repeated blocks without a residual addition"}
    ]
    text = run(capsys, *COMMAND, "--try", "rezero", "--output-format", "markdown").out
    assert "| as it is |" in text
    assert "- **rezero**" in text


def test_a_sound_model_needs_nothing(capsys: Capture) -> None:
    command = ["suggest", "builtin:pre-ln", "-a", "layers=2", "-a", "d_model=16", "--steps", "2", "--try", "rezero"]
    assert "Nothing needs mending" in run(capsys, *command).out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["--try", "skipz"], "no remedy 'skipz'"), (["--output-format", "sarif"], "not known")],
)
def test_misuse_is_exit_2(capsys: Capture, arguments: list[str], told: str) -> None:
    done = run(capsys, *COMMAND, *arguments)
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1


def test_the_target_is_inert_in_markdown(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "a`b_@c.py"
    file.write_text("import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))\n")
    command = ["suggest", str(file), "--input", "2x4", "--steps", "1", "--no-jacobian", "--try", "lower-lr"]
    heading = run(capsys, *command, "--output-format", "markdown").out.splitlines()[0]
    assert heading.startswith("## ``")
    assert heading.endswith("a`b_@c.py``")


@pytest.mark.parametrize("command", [COMMAND, ["sweep", "builtin:mlp", "-a", "layers=2,4"]])
def test_without_torch_it_is_said_what_is_missing(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    done = run(capsys, *command)
    assert done.code == 2
    assert "needs torch, which is not installed" in done.err
