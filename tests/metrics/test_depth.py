import math
import random

import pytest

from gradscope.metrics.depth import DepthProfile, Station, cliff, replicated_decades_per_block
from gradscope.metrics.facts import Facts
from tests.support.recordings import stack


def profile(grads, forwards=None, counts=None, kinds=None):
    kinds = kinds or ["start", *["block"] * (len(grads) - 1)]
    stations = tuple(Station(i, f"s{i}", kind, None, f"s{i}", 0) for i, kind in enumerate(kinds))
    return DepthProfile(
        0, stations, tuple(grads), tuple(forwards or [1.0] * len(grads)), tuple(counts or [64] * len(grads))
    )


def test_decades_are_log10_of_start_over_end():
    found = profile([1e-5, 1e-3, 1e-1])
    assert found.decades == pytest.approx(-4)
    assert found.decades_from_first_block == pytest.approx(-2)
    assert found.num_blocks == 2


def test_the_mean_increment_times_the_blocks_is_the_total():
    draw = random.Random(1)
    norms = [10 ** draw.uniform(-3, 3) for _ in range(20)]
    found = profile(norms)
    assert found.decades_per_block.mean * found.num_blocks == pytest.approx(found.decades)


def test_additions_inside_blocks_do_not_count_as_blocks():
    found = profile([1.0, 2.0, 4.0, 8.0, 16.0], kinds=["start", "addition", "block", "addition", "block"])
    assert found.num_blocks == 2
    assert found.decades == pytest.approx(math.log10(1 / 16))


def test_rms_and_l2_differ_by_the_widths():
    # Linear n_in -> n_out with variance 1/fan_in keeps the L2 norm; the RMS changes by sqrt(n_out / n_in).
    found = profile([1.0, 1.0, 1.0], counts=[100, 10, 1])
    assert found.decades == 0.0
    assert found.decades_rms == pytest.approx(-1.0)


def test_a_zero_at_the_start_has_no_decades_but_a_place():
    found = profile([0.0, 0.0, 1e-9, 1.0])
    assert found.decades is None
    assert found.lost_below == 2


def test_scale_free_decades_ignore_a_rescaled_layer():
    # Doubling the activations halves their gradients: nothing is lost.
    assert profile([1.0, 1 / 8], forwards=[1.0, 8.0]).scale_free_decades == pytest.approx(0.0)


def test_increments_are_recovered_from_a_stack():
    found = Facts(stack(12, decades_per_block=-0.25)).profile
    assert found.decades_per_block.mean == pytest.approx(-0.25)
    assert found.decades_per_block.excludes_zero
    assert found.num_blocks == 12


def test_one_steep_block_is_a_cliff():
    norms = [10 ** (-0.1 * (10 - i) - (2.0 if i < 6 else 0.0)) for i in range(11)]
    steep = cliff(profile(norms))
    assert steep.index == 6
    assert steep.jump_decades == pytest.approx(-2.1)
    assert steep.usual_decades == pytest.approx(-0.1)


def test_three_blocks_have_no_usual_one():
    assert cliff(profile([1.0, 1.0, 1.0, 1e6])) is None


def test_seeds_are_the_unit_of_replication():
    profiles = [Facts(stack(12, decades_per_block=slope)).profile for slope in (-0.1, -0.2, -0.3)]
    interval = replicated_decades_per_block(profiles)
    assert (interval.num_values, interval.over) == (3, "seeds")
    assert interval.mean == pytest.approx(-0.2)
    assert interval.high - interval.low == pytest.approx(2 * 4.303 * 0.1 / math.sqrt(3), rel=1e-3)
