"""What counts as worse than the committed table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from zoo.table import Row, read, regressions, write

GOOD = Row("timm:a", "yes", "yes", "8", "8", "identity:8", "will-train", "", "", "quick")
STOPPED = Row("timm:a", "InputsError: none found")


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        (replace(GOOD, runs="ValueError: no"), "does not run: ValueError: no"),
        (replace(GOOD, unchanged="no"), "gradients differ"),
        (replace(GOOD, found="7"), "7 residual additions instead of 8"),
        (replace(GOOD, errors="GS107"), "false alarm GS107"),
        (replace(GOOD, expected="", found="9"), "9 residual additions found, 8 in results.csv"),
    ],
)
def test_a_worse_cell_fails(now: Row, sentence: str) -> None:
    assert regressions(GOOD, GOOD, ()) == []
    (worse,) = regressions(now, GOOD, ())
    assert worse.startswith(sentence)


READ = replace(
    GOOD,
    kinds="concat:2 identity:5 projection:3 recurrent:1",
    expected_kinds="projection:3 identity:5",
    placements="output:8",
    expected_placements="output:8",
)


def test_kinds_and_placements_are_compared_with_what_was_read_by_hand() -> None:
    assert READ.faults() == {}
    wrong = replace(READ, kinds="identity:6 projection:2", placements="output:7 pre:1")
    assert wrong.faults() == {
        "kinds": "kinds identity:6 projection:2 instead of identity:5 projection:3",
        "placements": "placements output:7 pre:1 instead of output:8",
    }
    assert len(regressions(wrong, READ, ())) == 2
    assert regressions(wrong, wrong, ["kinds", "placements"]) == []


def test_what_was_not_read_or_not_measured_yet_is_no_fault() -> None:
    assert replace(READ, kinds="scaled:8", expected_kinds="").faults() == {}
    assert replace(READ, placements="").faults() == {}


def test_a_table_from_before_placements_were_noted_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    path.write_text("target,runs,found\ntimm:a,yes,8\n")
    assert read(path)["timm:a"] == Row("timm:a", "yes", found="8")


def test_what_never_ran_may_go_on_not_running_but_must_be_right_once_it_does() -> None:
    assert regressions(STOPPED, STOPPED, ()) == []
    assert regressions(STOPPED, None, ()) != []
    assert regressions(GOOD, STOPPED, ()) == []
    assert regressions(replace(GOOD, found="7"), STOPPED, ()) != []


def test_a_known_fault_passes_until_it_gets_worse() -> None:
    wrong = replace(GOOD, found="7")
    assert regressions(wrong, wrong, ["found"]) == []
    assert regressions(replace(GOOD, found="6"), wrong, ["found"]) != []
    alarmed = replace(GOOD, errors="GS107")
    assert regressions(alarmed, alarmed, ["errors"]) == []
    assert regressions(replace(GOOD, errors="GS107 GS301"), alarmed, ["errors"]) == ["new false alarm GS301"]


def test_a_new_architecture_need_only_be_right() -> None:
    assert regressions(GOOD, None, ()) == []


def test_the_table_survives_writing_and_reading(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    write([replace(GOOD, target="timm:b", hidden='a "quoted", name'), GOOD], path)
    assert list(read(path)) == ["timm:a", "timm:b"]
    assert read(path)["timm:a"] == GOOD
    assert read(path)["timm:b"].hidden == 'a "quoted", name'
