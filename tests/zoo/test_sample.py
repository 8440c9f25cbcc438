"""CI's sample of the zoo."""

from __future__ import annotations

from zoo.catalog import Entry
from zoo.sample import ci_sample, part
from zoo.table import Row


def _entry(target: str) -> Entry:
    return Entry(target, "family", {}, None, "")


def _row(target: str, kinds: str = "identity:2", pace: str = "quick") -> Row:
    return Row(target, "yes", "yes", "2", "", kinds, "will-train", "", "", pace)


LISTED = [_entry(f"timm:{number}") for number in range(200)]
TABLE = {entry.target: _row(entry.target) for entry in LISTED}


def test_parts_are_disjoint_and_cover_everything() -> None:
    parts = [part(LISTED, number, 4) for number in range(4)]
    assert sorted(entry.target for some in parts for entry in some) == sorted(entry.target for entry in LISTED)
    assert all(20 < len(some) < 80 for some in parts)


def test_slow_ones_stay_out_and_new_ones_come_in() -> None:
    table = {target: _row(target, pace="slow") for target in TABLE}
    assert ci_sample(LISTED, table) == []
    assert [entry.target for entry in ci_sample([*LISTED, _entry("timm:new")], table)] == ["timm:new"]


def test_every_kind_is_in_the_sample() -> None:
    left_out = next(entry for entry in LISTED if entry not in ci_sample(LISTED, TABLE))
    table = TABLE | {left_out.target: _row(left_out.target, "gated:3")}
    assert left_out in ci_sample(LISTED, table)


def test_of_very_many_new_ones_only_some_are_looked_at() -> None:
    many = [_entry(f"hf:{number}") for number in range(500)]
    assert 0 < len(ci_sample([*LISTED, *many], TABLE)) < len(LISTED)


def test_the_sample_does_not_grow_with_the_table() -> None:
    listed = [_entry(f"timm:{number}") for number in range(1000)]
    assert len(ci_sample(listed, {entry.target: _row(entry.target) for entry in listed})) < len(LISTED)
