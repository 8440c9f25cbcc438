"""`gradscope experiment`: the list, a run in every format, and hostile text in a result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradscope.cli.experiment_page import draw_experiment, draw_table, experiment_markdown
from gradscope.experiments.catalog import EXPERIMENTS
from gradscope.experiments.result import Check, Claim, ExperimentResult, table
from gradscope.report.console import rendered
from gradscope.report.glyphs import glyphs_for
from tests.cli.running import run

Capture = pytest.CaptureFixture[str]

RESULT = ExperimentResult(
    "sample",
    "A [b]title[/b]",
    (table("Numbers", ("name | x", "value"), [("a|b", 0.25), ("\x1b[31m", None), ("c", float("nan"))], "A note."),),
    (
        Claim(
            "It is so.", "somebody", (Check("here", "number", 1.0, 0.5, None), Check("there", "number", 0.1, 0.5, None))
        ),
        Claim("It is never so.", "nobody", (Check("here", "number", float("nan"), 0.5, 1.0),), "Because."),
    ),
    ("One seed.",),
)


def test_without_a_name_the_experiments_are_listed(capsys: Capture) -> None:
    done = run(capsys, "experiment")
    assert done.code == 0
    for experiment in EXPERIMENTS:
        assert experiment.name in done.out


def test_an_unknown_name_or_format_is_exit_2(capsys: Capture) -> None:
    assert run(capsys, "experiment", "residul").err.startswith("error: there is no experiment 'residul'")
    assert run(capsys, "experiment", "layernorm", "--output-format", "sarif").code == 2


def test_a_result_shows_tables_verdicts_checks_and_notes() -> None:
    text = rendered(lambda console: draw_experiment(RESULT, console), None, 80)
    for part in ("A [b]title[/b]", "Numbers", "0.25", "nan", "▲ depends", "✗ does not hold", "somebody", "One seed."):
        assert part in text
    assert "there: number 0.1 (at least 0.5)" in text
    assert "\x1b" not in text


def test_the_markdown_has_as_many_cells_in_every_row() -> None:
    rows = [line for line in experiment_markdown(RESULT).splitlines() if line.startswith("| ")]
    assert [row.replace("\\|", "").count("|") - 1 for row in rows] == [2, 2, 2, 2, 2, 4, 4, 4, 4]


def test_one_is_run_saved_and_printed(capsys: Capture, tmp_path: Path) -> None:
    saved = tmp_path / "result.json"
    page = tmp_path / "page.html"
    done = run(capsys, "experiment", "layernorm", "--quick", "-o", saved, "--html", page, "--output-format", "json")
    assert done.code == 0
    assert "LayerNorm, worked by hand" in page.read_text()
    printed = json.loads(done.out)
    assert printed == json.loads(saved.read_text())
    assert printed["quick"] is True
    assert {claim["verdict"] for claim in printed["claims"]} <= {"holds", "does not hold", "depends"}


def test_several_make_one_page(capsys: Capture, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run(capsys, "experiment", "layernorm", "norm-axis", "--quick", "--html", page)
    assert done.code == 0
    text = page.read_text()
    assert 'id="layernorm-claims"' in text
    assert text.count('<a href="#layernorm-') == 1
    assert "2 experiments, really run" in text
    assert "16 claims tested: 12 hold, 2 do not hold, 2 depend on the setting." in text
    assert 'id="norm-axis-' in text


def test_ctrl_c_keeps_the_finished_experiments(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run_one(name: str, _quick: bool, _progress: object) -> ExperimentResult:
        if name == "precision":
            raise KeyboardInterrupt
        return RESULT

    monkeypatch.setattr("gradscope.experiments.run", run_one)
    saved = tmp_path / "results.json"
    done = run(capsys, "experiment", "layernorm", "norm-axis", "precision", "paths", "-o", saved)
    assert done.code == 130
    assert len(json.loads(saved.read_text())) == 2
    assert "interrupted: 2 of 4 experiments were run" in done.err
    assert run(capsys, "experiment", "precision", "paths").code == 130


def test_a_table_too_wide_for_the_terminal_keeps_its_numbers_whole() -> None:
    wide = table(
        "Wide",
        ("what it is in many words", *(f"column number {place}" for place in range(6))),
        [("one thing after another, told at length", *(1234.5678 + place for place in range(6)))],
    )
    text = rendered(lambda console: draw_table(wide, console, glyphs_for("utf-8")), None, 80)
    assert all(f"{1234.5678 + place:.4g}" in text for place in range(6)) or "1,235" in text
    assert max(map(len, text.splitlines())) <= 80
    narrow = table("Narrow", ("a heading of words", "verdict"), [(1.0, "will not train")])
    assert "a heading of words  verdict" in rendered(lambda c: draw_table(narrow, c, glyphs_for("utf-8")), None, 80)
