"""The depth profile of each variant at initialisation, by plain autograd, against the reference table and the laws."""

from __future__ import annotations

import csv
import math

import pytest
import torch

from gradscope.variants import VARIANTS, subject
from gradscope.variants.expected import EXPECTED_DEPTHS
from tests.variants.gradients import decades, end_gradients, mean_decades
from tests.variants.measure_decades import COLUMNS, FOLDER, SETTING, Cell, Row, cells, measure

CELLS = [cell for variant in VARIANTS for cell in cells(variant) if cell.source]
SHALLOW = [cell for cell in CELLS if cell.blocks in (10, 18)]


def name_of(cell: Cell) -> str:
    return f"{cell.variant}-{cell.shown_arguments}"


def saved() -> dict[tuple[str, str, int], dict[str, str]]:
    """The full table in docs/variants, as `make decades` wrote it."""
    with (FOLDER / "decades.csv").open(newline="") as file:
        return {(row["variant"], row["arguments"], int(row["blocks"])): row for row in csv.DictReader(file)}


@pytest.mark.parametrize("cell", SHALLOW, ids=name_of)
def test_ten_blocks_lie_in_their_range(cell):
    assert measure(cell, seeds=2).inside, (cell, measure(cell, seeds=2).values)


def test_every_variant_is_expected_to_lie_somewhere():
    assert {cell.variant for cell in CELLS} == {variant.name for variant in VARIANTS}


def test_the_saved_table_is_complete_and_everything_lies_in_its_range():
    table = saved()
    assert set(table) == {(c.variant, c.shown_arguments, c.blocks) for v in VARIANTS for c in cells(v)}
    for cell in CELLS:
        row = table[cell.variant, cell.shown_arguments, cell.blocks]
        assert row["inside"] == "yes", row
        expected = Row(cell, (0.0,)).written()
        assert [row["low"], row["high"], row["source of the range"]] == [expected[6], expected[7], cell.source]


@pytest.mark.parametrize("name", ["pre-ln", "mhc", "mlp-tanh"])
def test_the_saved_table_is_what_is_measured(name):
    """Two of its rows each, from the same seeds."""
    variant = next(variant for variant in VARIANTS if variant.name == name)
    for cell in list(cells(variant))[:2]:
        row = saved()[name, cell.shown_arguments, cell.blocks]
        measured = measure(cell, seeds=int(row["seeds"]))
        assert measured.mean == pytest.approx(float(row["D"]), abs=0.01)


def test_a_value_outside_its_range_is_seen():
    cell = Cell("pre-ln", {}, 10, 0.1, 0.2, "somewhere")
    assert [Row(cell, (value,)).inside for value in (0.15, 0.3, None)] == [True, False, False]
    assert Row(Cell("fixup", {}, 10, None, None, "no gradient"), (None,)).inside
    assert Row(Cell("pre-ln", {}, 10, None, None, ""), (0.3,)).inside is None
    assert len(Row(cell, (0.15,)).written()) == len(COLUMNS)


@pytest.mark.parametrize("name", ["pre-ln", "peri-ln", "output-norm", "deepnorm", "lns"])
def test_forty_eight_blocks(name):
    variant = next(variant for variant in VARIANTS if variant.name == name)
    low, high = variant.expected["xavier"].range_at(EXPECTED_DEPTHS.index(48))
    assert low <= mean_decades(name, seeds=2, layers=48, init="xavier", **SETTING) <= high


@pytest.mark.parametrize("name", ["rezero", "zero-last", "skipinit"])
def test_zero_initialised_branches_pass_the_gradient_bitwise(name):
    start, end = end_gradients(subject(name, {"layers": 24}, 0))
    assert torch.equal(start, end)


def test_fixup_has_no_activation_gradient_before_its_first_step():
    start, end = end_gradients(subject("fixup", {"layers": 6}, 0))
    assert not start.any()
    assert not end.any()


def test_unnormalised_residuals_overflow_at_forty_eight_blocks():
    start, _ = end_gradients(subject("residual-no-norm", {"layers": 48}, 0))
    assert not torch.isfinite(start).all()


@pytest.mark.parametrize("layers", [10, 24, 48])
def test_peri_ln_follows_its_law(layers):
    """0.5 log10(1 + 2L): every branch adds unit variance to a stream that starts with unit variance."""
    measured = mean_decades("peri-ln", seeds=2, layers=layers, init="xavier")
    assert measured == pytest.approx(0.5 * math.log10(1 + 2 * layers), abs=0.2)


def test_hyper_connections_carry_pre_lns_gradient_once_per_stream():
    """Four equal streams: |g_0| = 4 |g| against |g_L| = sqrt(4) |g|, so D exceeds Pre-LN's by log10 2."""
    for name in ("hyper-connections", "hyper-connections-static", "mhc"):
        assert decades(name, layers=10) == pytest.approx(decades("pre-ln", layers=10) + math.log10(2), abs=0.05)
