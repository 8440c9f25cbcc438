"""Runs side by side: what is better or worse, beyond what seeds explain, and profiles aligned."""

from __future__ import annotations

import pytest

from gradscope.gate.differences import Contender, Measured, measured, profiles
from gradscope.record import Recording
from gradscope.rules.finding import Diagnosis
from gradscope.rules.verdict import diagnose
from tests.support.recordings import stack


def contender(name: str, *recordings: Recording, metrics: list[dict[str, float]] | None = None) -> Contender:
    if metrics is None:
        diagnoses = tuple(diagnose(recording) for recording in recordings)
    else:
        diagnoses = tuple(Diagnosis("will-train", "", (), values) for values in metrics)
    return Contender(name, recordings or (stack(3),) * len(diagnoses), diagnoses, diagnoses[0])


def judged(name: str, first: list[float], second: list[float]) -> str:
    pair = [
        contender(side, metrics=[{name: value} for value in values]) for side, values in (("a", first), ("b", second))
    ]
    (row,) = measured(pair)
    return row.judgements[1]


@pytest.mark.parametrize(
    ("name", "first", "second", "expected"),
    [
        ("decades", [-0.1], [-4.0], "worse"),
        ("decades", [-4.0], [0.2], "better"),
        ("decades", [-4.0], [4.0], "same"),
        ("decades", [0.1], [0.15], "same"),
        ("decades", [-0.1], [float("nan")], "worse"),
        ("decades", [float("nan")], [-0.1], "better"),
        ("jacobian_anisotropy", [2.0], [200.0], "worse"),
        ("jacobian_anisotropy", [2.0], [2.2], "same"),
        ("token_cosine", [0.99], [0.3], "better"),
        ("decades", [-0.2, 0.2, -0.4], [-0.5, 0.1, -0.9], "same"),
        ("decades", [-0.2, -0.21, -0.19], [-0.6, -0.61, -0.59], "worse"),
        ("sample_cosine", [0.1], [0.9], ""),
    ],
)
def test_judgements(name: str, first: list[float], second: list[float], expected: str) -> None:
    assert judged(name, first, second) == expected


def test_a_number_only_one_run_has_is_listed_without_a_judgement() -> None:
    rows = measured([contender("a", metrics=[{"decades": 1.0}]), contender("b", metrics=[{}])])
    assert rows == [Measured("decades", (rows[0].values[0], None), ("", ""))]


def test_blocks_are_matched_by_name_where_most_agree() -> None:
    found = profiles([contender("a", stack(6)), contender("b", stack(6, decades_per_block=-0.5))])
    assert found is not None
    assert found.by_name
    assert found.places == ("embed", *(f"layers.{n}" for n in range(6)))
    first, last = found.values[0], found.values[-1]
    assert (first[0].mean, first[1].mean) == (pytest.approx(0.0), pytest.approx(-3.0))  # type: ignore[union-attr]
    assert (last[0].mean, last[1].mean) == (pytest.approx(0.0), pytest.approx(0.0))  # type: ignore[union-attr]


def test_other_blocks_are_matched_by_relative_depth() -> None:
    other = stack(20, names=[f"stage.{n}" for n in range(20)], decades_per_block=-0.1)
    found = profiles([contender("a", stack(6)), contender("b", other)])
    assert found is not None
    assert not found.by_name
    assert found.places[0] == "0%"
    halfway = found.values[5][1]
    assert halfway is not None
    assert halfway.mean == pytest.approx(-1.0)


def test_one_profile_is_nothing_to_compare() -> None:
    empty = stack(1, steps=(0,))
    assert profiles([contender("a", stack(6)), contender("b", empty)]) is None
