import math
import random

import pytest

from gradscope.metrics.interval import mean_interval, student_quantile

# Abramowitz & Stegun, table 26.10: two-sided 95 %.
TABLE = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 23: 2.069, 47: 2.012, 1000: 1.962}


@pytest.mark.parametrize(("degrees", "quantile"), TABLE.items())
def test_student_quantiles_match_the_published_table(degrees, quantile):
    assert student_quantile(0.975, degrees) == pytest.approx(quantile, rel=2e-3)


def test_an_interval_of_one_value_has_no_ends():
    interval = mean_interval([0.3], "blocks")
    assert (interval.mean, interval.low, interval.high) == (0.3, None, None)
    assert not interval.excludes_zero


def test_nothing_has_no_interval():
    assert mean_interval([], "blocks") is None


def test_the_interval_covers_the_true_mean_as_often_as_it_says():
    draw = random.Random(0)
    hits = 0
    for _ in range(2000):
        interval = mean_interval([draw.gauss(0.1, 0.5) for _ in range(10)], "blocks")
        hits += interval.low <= 0.1 <= interval.high
    assert hits / 2000 == pytest.approx(0.95, abs=3 * math.sqrt(0.95 * 0.05 / 2000))
