import pytest

from gradscope.metrics.replicas import with_replicas
from gradscope.report.measures import described_measures
from gradscope.rules import diagnose
from tests.support.recordings import stack


def test_the_interval_of_d_is_over_seeds_where_there_are_several():
    first, *others = (stack(10, decades_per_block=slope) for slope in (-0.10, -0.12, -0.14))
    metrics = diagnose(with_replicas(first, others)).metrics
    assert metrics["num_seeds"] == 3
    assert metrics["decades"] == pytest.approx(-1.0)
    assert metrics["decades_over_seeds"] == pytest.approx(-1.2)
    # t(0.975, 2) = 4.303; sd 0.2; / sqrt(3)
    assert metrics["decades_low"] == pytest.approx(-1.2 - 4.303 * 0.2 / 3**0.5, abs=2e-3)
    assert metrics["decades_per_block_high"] == pytest.approx(-0.12 + 4.303 * 0.02 / 3**0.5, abs=2e-4)
    words = {measure.label: measure.meaning for measure in described_measures(metrics)}
    assert "over 3 seeds" in words["end to end"]
    assert "over 3 seeds" in words["per block"]


def test_without_seeds_the_interval_is_over_blocks():
    metrics = diagnose(stack(10, decades_per_block=-0.1)).metrics
    assert metrics["num_seeds"] is None
    assert metrics["decades_low"] is None
    assert metrics["decades_per_block_low"] == pytest.approx(-0.1)


def test_a_factory_that_seeds_itself_is_confessed():
    recording = with_replicas(stack(6), [stack(6)])
    assert "every seed gives the same network" in recording.tables["confessions"]["why"]
    assert diagnose(recording).metrics["num_seeds"] is None


def test_the_recording_that_is_extended_is_left_alone():
    first = stack(6, decades_per_block=-0.1)
    with_replicas(first, [stack(6, decades_per_block=-0.2)])
    assert "decades_of_seed" not in first.tables["observations"]["metric"]
