"""How near a run is to changing sides."""

from __future__ import annotations

import pytest

from gradscope.gate.margins import margin
from gradscope.rules.verdict import diagnose
from tests.support.recordings import stack


@pytest.mark.parametrize(
    ("total", "almost", "barely"),
    [(-1.0, (), ()), (-3.3, ("GS101",), ()), (-3.7, (), ("GS101",)), (-5.0, (), ()), (-12.0, (), ())],
)
def test_what_lies_close_to_a_limit(total: float, almost: tuple[str, ...], barely: tuple[str, ...]) -> None:
    recording = stack(12, decades_per_block=total / 12)
    found = margin(recording, diagnose(recording), {})
    assert (found.almost, found.barely) == (almost, barely)


def test_a_limit_of_ones_own_counts() -> None:
    recording = stack(12, decades_per_block=-5.0 / 12)
    thresholds = {"GS101.decades": 5.2, "GS101.warn_decades": 5.0}
    assert margin(recording, diagnose(recording, thresholds), thresholds).almost == ("GS101",)
