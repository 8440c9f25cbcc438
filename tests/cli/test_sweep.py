"""`gradscope sweep`: axes, the table, the chart, the laws, resuming, formats."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import pytest

from gradscope.cli import axes
from gradscope.cli.axes import parse_axes
from gradscope.errors import ConfigError
from tests.cli.running import run

Capture = pytest.CaptureFixture[str]


def test_the_examples_in_the_documentation_hold() -> None:
    assert doctest.testmod(axes).failed == 0


@pytest.mark.parametrize("words", [["layers=6,6"], ["layers=6,"], ["layers"], ["layers=6,12", "layers=3"]])
def test_what_is_no_axis_is_refused(words: list[str]) -> None:
    with pytest.raises(ConfigError):
        parse_axes(words)


def test_a_grid_is_measured_fitted_saved_and_resumed(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gradscope.toml").write_text("")
    command = ["sweep", "builtin:pre-ln", "-a", "layers=2,3,4,5", "-a", "d_model=16", "--seeds", "2", "--no-jacobian"]
    done = run(capsys, *command, "--resume", "rows.jsonl", "--html", "page.html", "-o", "sweep.json")
    assert done.code == 0, done.err
    assert "layers=2" in done.out
    assert "With depth" in done.out
    assert len(Path("rows.jsonl").read_text().splitlines()) == 8
    assert "<html" in Path("page.html").read_text()
    saved = json.loads(Path("sweep.json").read_text())
    assert saved["axes"] == {"layers": [2, 3, 4, 5]}
    assert [row["arguments"]["d_model"] for row in saved["rows"]] == [16] * 8
    monkeypatch.setattr("gradscope.experiments.sweep.measure_cell", None)  # nothing may be measured again
    again = run(capsys, *command, "--resume", "rows.jsonl", "--output-format", "json")
    assert json.loads(again.out) == saved
    table = run(capsys, *command, "--resume", "rows.jsonl", "--output-format", "markdown").out
    assert "| layers | blocks |" in table


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "nothing to sweep"),
        (["-a", "layers=6,12", "--weights", "x.pt"], "no use for 'weights'"),
        (["-a", "layers=6,12", "--output-format", "sarif"], "not known"),
    ],
)
def test_misuse_is_exit_2(capsys: Capture, arguments: list[str], told: str) -> None:
    done = run(capsys, "sweep", "builtin:pre-ln", *arguments)
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1
