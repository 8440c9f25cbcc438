"""The table of coverage and its page, from made-up rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from gradscope.errors import InferenceOnlyError, InputsError, LossError
from gradscope.target.hf.attempt import NOT_CALLED
from gradscope.target.subject import Origin, Subject
from zoo import attempt, coverage_table
from zoo.coverage_page import page
from zoo.coverage_table import (
    COLUMNS,
    INFERENCE_ONLY,
    KILLED,
    NO_GRADIENT,
    NO_INPUTS,
    NOT_BUILT,
    PART_STEPS,
    STEPS,
    Row,
)

NOTE = f"Only the part decoder of Whole, in miniature: {NOT_CALLED}."


def _row(target: str, outcome: str, **more: str) -> Row:
    return {**dict.fromkeys(COLUMNS, ""), "target": target, "outcome": outcome, **more}


ROWS = {
    row["target"]: row
    for row in (
        _row("hf:whole", STEPS, idle="0", commit="abc"),
        _row("hf:half", STEPS, idle="3", commit="abc"),
        _row("hf:none", NO_INPUTS, detail="takes (a | b)", commit="def"),
        _row("timm:one", STEPS, idle="0", commit="abc"),
    )
}
LISTED = {"torchvision": 2, "timm": 1, "hf": 9}


def test_the_table_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "coverage.csv"
    assert coverage_table.read(path) == {}
    coverage_table.write(ROWS, path)
    assert coverage_table.read(path) == ROWS
    assert list(tmp_path.iterdir()) == [path]


def test_the_page_counts_what_was_tried_what_stepped_and_what_stepped_whole() -> None:
    lines = page(ROWS, LISTED).splitlines()
    counts = {line[2:].partition(":")[0]: line for line in lines if line.startswith(("| transformers", "| timm"))}
    assert "| 9 | 3 | 2 | 1 of 2 | 0 | 0 | 0 | 0 | 1 |" in counts["transformers"]
    assert "| 1 | 1 | 1 | 1 of 1 |" in counts["timm"]
    assert "| `hf:none` | no inputs found | takes (a \\| b) |" in lines
    assert "Rows are from abc (3), def (1)." in lines


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (MemoryError("no room"), KILLED),
        (ValueError("hf:made-up has no such part"), NOT_BUILT),
        (InputsError("hf:made-up takes nothing"), NO_INPUTS),
        (LossError("hf:made-up has no output that trains"), NO_GRADIENT),
        (InferenceOnlyError("The forward of hf:made-up runs without gradients"), INFERENCE_ONLY),
    ],
)
def test_what_went_wrong_says_what_came_of_a_target(
    monkeypatch: pytest.MonkeyPatch, error: Exception, outcome: str
) -> None:
    def load(target: str) -> None:
        raise error

    monkeypatch.setattr(attempt, "load", load)
    row = attempt._tried("hf:made-up")
    assert row["outcome"] == outcome
    assert "hf:made-up" in row["detail"]


def test_a_part_is_not_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step of a part that was taken because the whole found no inputs is a row of its own kind."""
    origin = Origin("x = 2x3 normal numbers")

    def loss(output: torch.Tensor, _: object) -> torch.Tensor:
        return output.sum()

    subject = Subject(nn.Linear(3, 2), [torch.ones(2, 3)], loss, "hf:made-up", origin, origin, notes=(NOTE,))
    monkeypatch.setattr(attempt, "load", lambda _: subject)
    row = attempt._tried("hf:made-up")
    assert (row["outcome"], row["model"], row["idle"]) == (PART_STEPS, "Linear", "0")
    assert row["detail"].startswith(NOTE)
