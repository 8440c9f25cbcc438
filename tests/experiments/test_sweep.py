from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradscope.errors import GradscopeError, RecordError
from gradscope.experiments import sweep as sweeping
from gradscope.experiments.sweep import grid, sweep
from gradscope.experiments.sweep_laws import Row, fit_laws
from gradscope.experiments.sweep_table import sweep_table
from gradscope.probe.settings import ProbeSettings
from tests.variants.gradients import decades

FAST = ProbeSettings(num_steps=1, watched_steps=(0,), jacobian=False)

OWN_FACTORY = """
import torch
from torch import nn

def model(depth=4, width=16):
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 3))

def batch():
    return (torch.randn(32, 16, generator=torch.Generator().manual_seed(0)),)

def loss(output, batch):
    return nn.functional.cross_entropy(output, batch[0].argmax(1) % 3)
"""


def made_up(depth: int, seed: int, value: float, **arguments: object) -> Row:
    return Row({"layers": depth, **arguments}, seed, "will-train", {"num_blocks": depth, "decades": value})


def test_the_grid_is_every_combination_from_every_seed():
    cells = grid("builtin:pre-ln", {"layers": [2, 4], "init": ["xavier", "he"]}, {"heads": 2}, 3)
    assert len(cells) == 12
    assert len({cell.key for cell in cells}) == 12
    assert all(cell.arguments["heads"] == 2 for cell in cells)


def test_a_sweep_measures_what_plain_autograd_does_and_finds_the_law():
    found = sweep("builtin:mlp-batchnorm", {"layers": [6, 12, 24]}, num_seeds=2, settings=FAST)
    for row in found.rows:
        expected = decades("mlp-batchnorm", row.seed, layers=row.arguments["layers"])
        assert row.metrics["decades"] == pytest.approx(expected, abs=0.2)
    law = next(law for law in found.laws if law.quantity.metric == "decades")
    assert law.law.best.shape in ("exponential", "power law")
    json.dumps(found.to_object(), allow_nan=False)


def test_a_users_own_factory(tmp_path: Path):
    file = tmp_path / "model.py"
    file.write_text(OWN_FACTORY)
    found = sweep(str(file), {"depth": [4, 8, 16]}, num_seeds=2, settings=FAST)
    assert [row.error for row in found.rows] == [None] * 6
    assert all(row.metrics["decades"] < 0 for row in found.rows)
    law = next(law for law in found.laws if law.quantity.metric == "decades")
    assert "breaks" in law.sentence


def test_rows_in_the_log_are_not_measured_again(tmp_path: Path, monkeypatch):
    log = tmp_path / "sweep.jsonl"
    measured = []

    def measure(cell, settings):
        measured.append(cell.key)
        return made_up(cell.arguments["layers"], cell.seed, 1.0)

    monkeypatch.setattr(sweeping, "measure_cell", measure)
    first = sweep("builtin:pre-ln", {"layers": [2, 4]}, num_seeds=2, log=log)
    assert len(measured) == 4
    with log.open("a") as file:
        file.write('{"key": "cut o')
    again = sweep("builtin:pre-ln", {"layers": [2, 4, 8]}, num_seeds=2, log=log)
    assert len(measured) == 6
    assert again.rows[:4] == first.rows
    sweep("builtin:pre-ln", {"layers": [2, 4, 8]}, num_seeds=2, log=log)
    assert len(measured) == 6


def test_ctrl_c_keeps_what_was_measured_and_the_log_goes_on_from_there(tmp_path: Path, monkeypatch):
    log = tmp_path / "sweep.jsonl"

    def measure(cell, settings):
        if cell.arguments["layers"] == 8:
            raise KeyboardInterrupt
        return made_up(cell.arguments["layers"], cell.seed, 1.0)

    monkeypatch.setattr(sweeping, "measure_cell", measure)
    cut = sweep("builtin:pre-ln", {"layers": [2, 4, 8, 16]}, num_seeds=2, log=log)
    assert cut.partial
    assert [row.arguments["layers"] for row in cut.rows] == [2, 2, 4, 4]
    assert cut.notes == ("Interrupted: 4 of 8 networks were measured. The same command goes on from there.",)
    monkeypatch.setattr(sweeping, "measure_cell", lambda cell, _: made_up(cell.arguments["layers"], cell.seed, 2.0))
    whole = sweep("builtin:pre-ln", {"layers": [2, 4, 8, 16]}, num_seeds=2, log=log)
    assert not whole.partial
    assert [row.metrics["decades"] for row in whole.rows] == [1.0] * 4 + [2.0] * 4


def test_ctrl_c_before_the_first_row_is_ctrl_c(monkeypatch):
    def measure(cell, settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeping, "measure_cell", measure)
    with pytest.raises(KeyboardInterrupt):
        sweep("builtin:pre-ln", {"layers": [2, 4]}, num_seeds=1)


def test_a_log_that_is_something_else_is_refused(tmp_path: Path):
    log = tmp_path / "notes.txt"
    log.write_text("hello\nworld\n")
    with pytest.raises(RecordError, match="line 1 is not a row"):
        sweep("builtin:pre-ln", {"layers": [2]}, log=log)


def test_what_cannot_be_built_is_a_row_and_a_note():
    found = sweep("builtin:pre-ln", {"d_model": [16, 18]}, fixed={"layers": 1}, num_seeds=1, settings=FAST)
    assert found.rows[0].error is None
    assert "does not divide" in found.rows[1].error
    assert "1 of 2 networks" in found.notes[0]


def test_nothing_at_all_is_an_error():
    with pytest.raises(GradscopeError, match="no argument 'layer'"):
        sweep("builtin:pre-ln", {"layer": [2, 4]}, num_seeds=1)


def test_workers_give_the_same_rows():
    alone = sweep("builtin:mlp-relu", {"layers": [3, 6]}, num_seeds=1, settings=FAST)
    together = sweep("builtin:mlp-relu", {"layers": [3, 6]}, num_seeds=1, settings=FAST, num_workers=2)
    assert alone.rows == together.rows


def test_laws_are_fitted_per_choice_of_what_does_not_change_depth():
    rows = [
        made_up(depth, seed, slope * depth + 0.01 * seed, init=init)
        for init, slope in (("xavier", 0.1), ("he", 0.2))
        for depth in (6, 12, 24)
        for seed in range(2)
    ]
    laws = fit_laws(rows, ["layers", "init"])
    assert {law.others["init"]: round(law.law.best.slope, 3) for law in laws} == {"xavier": 0.1, "he": 0.2}


def test_without_a_changing_depth_there_is_no_law():
    rows = [Row({"width": w}, 0, "will-train", {"num_blocks": 4, "decades": 0.1}) for w in (8, 16, 32, 64)]
    laws = fit_laws(rows, ["width"])
    assert all(law.law is None for law in laws)
    assert "too few" in laws[0].sentence


def test_the_table_summarises_seeds():
    rows = [made_up(6, 0, 1.0), made_up(6, 1, 2.0), Row({"layers": 12}, 0, None, {}, "broke")]
    drawn = sweep_table(rows, ["layers"])
    assert drawn.rows[0][:4] == (6, 6, 1.5, pytest.approx(0.7071, abs=1e-4))
    assert drawn.rows[1][-1] == "not measured"


def test_rows_survive_json():
    row = Row({"layers": 6}, 1, "at-risk", {"decades": float("nan"), "token_cosine": None, "num_blocks": 6})
    back = Row.from_object(json.loads(json.dumps(row.to_object(), allow_nan=False)))
    assert back.metrics["num_blocks"] == 6
    assert back.metrics["decades"] != back.metrics["decades"]
