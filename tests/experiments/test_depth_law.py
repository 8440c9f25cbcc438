"""Laws of depth on made-up numbers of known shape, and on networks deeper than those fitted."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from gradscope.experiments.breaking_depth import breaking_depth, describe
from gradscope.experiments.depth_law import DepthLaw, NoLaw, find_law
from gradscope.experiments.depth_shapes import Point, fit
from tests.variants.gradients import decades

DEPTHS = (6, 12, 24)


def law(points) -> DepthLaw:
    found = find_law(points)
    assert isinstance(found, DepthLaw), found
    return found


def noisy(function, depths=DEPTHS, seeds=3, noise=0.02, seed=0):
    draw = random.Random(seed)
    return [Point(depth, function(depth) + draw.gauss(0, noise)) for depth in depths for _ in range(seeds)]


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda depth: -0.39 * depth + 0.2, "exponential"),
        (lambda depth: 1.7 * math.log10(depth) - 0.4, "power law"),
        (lambda depth: 0.002 * depth**2 + 0.1, "accelerating"),
        (lambda depth: 0.4, "flat"),
    ],
)
def test_the_shape_is_recognised(function, shape):
    assert law(noisy(function)).best.shape == shape


def test_a_growing_stream_is_recognised_and_its_growth_found():
    found = law(noisy(lambda depth: 0.5 * math.log10(1 + 0.9 * depth), depths=(4, 8, 16, 32)))
    assert found.best.shape == "growing stream"
    assert found.best.slope == pytest.approx(0.9, rel=0.15)


def test_the_slope_is_least_squares():
    """Against the textbook formula with weights 1/L, written out another way."""
    points = noisy(lambda depth: 0.1 * depth, noise=0.3)
    sw, swx = sum(1 / p.depth for p in points), len(points)
    swy, swxx = sum(p.value / p.depth for p in points), sum(p.depth for p in points)
    swxy = sum(p.value for p in points)
    assert fit(points, "exponential").slope == pytest.approx((sw * swxy - swx * swy) / (sw * swxx - swx**2))


def test_prediction_intervals_cover():
    """95 % nominal, random walks of 8 to 32 steps predicted at 64: between 90 and 99 % of 400 draws."""
    draw, hits, total = random.Random(1), 0, 400

    def walk(depth):
        return sum(0.1 + draw.gauss(0, 0.1) for _ in range(depth))

    for _ in range(total):
        points = [Point(depth, walk(depth)) for depth in (8, 16, 32) for _ in range(4)]
        predicted = fit(points, "exponential").predict(64)
        hits += predicted.low <= walk(64) <= predicted.high
    assert 0.90 <= hits / total <= 0.99


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([Point(6, 1.0), Point(12, 2.0)], "2 different depths are too few"),
        ([Point(6, 1.0), Point(12, 2.0), Point(24, 4.0)], "3 networks are too few"),
        ([Point(6, 1.0), Point(12, math.nan), Point(24, math.inf)], "2 of 3 networks gave no finite number"),
    ],
)
def test_too_little_data_is_no_law(points, words):
    found = find_law(points)
    assert isinstance(found, NoLaw)
    assert words in found.reason


def test_the_breaking_depth_of_a_clean_exponential():
    found = breaking_depth(law(noisy(lambda depth: 0.1 * depth, noise=0.01)), 3.5)
    assert found.known
    assert found.depth == pytest.approx(35, abs=1)
    assert found.low <= found.depth <= found.high
    assert found.high - found.low < 6


def test_what_is_past_the_limit_at_the_shallowest_is_said_to_be():
    found = law(noisy(lambda depth: 4 + 0.1 * depth))
    breaks = breaking_depth(found, 3.5)
    assert breaks.already
    assert not breaks.known
    sentence = describe(found, 3.5, "D", "decades")
    assert sentence.endswith("It is already past its limit (3.5 decades) at the shallowest (6 blocks).")


def test_a_break_just_above_the_shallowest_has_no_lower_end():
    """3.5 is reached at 7 blocks; 6 may be past it already, and nothing shallower was measured."""
    found = law(noisy(lambda depth: 0.5 * depth, noise=0.4))
    breaks = breaking_depth(found, 3.5)
    assert breaks.open_below
    assert 6 < breaks.depth < breaks.high
    assert f"at about {breaks.depth:.2g} blocks, {breaks.high:.2g} at most." in describe(found, 3.5, "D", "decades")


def test_only_the_shapes_asked_for_are_fitted():
    points = noisy(lambda depth: 0.5 * math.log10(1 + 0.9 * depth), depths=(4, 8, 16, 32))
    found = find_law(points, ("power law", "exponential"))
    assert isinstance(found, DepthLaw)
    assert {one.shape for one in (found.best, *found.rivals)} <= {"power law", "exponential"}


def test_more_noise_widens_the_interval():
    quiet = breaking_depth(law(noisy(lambda depth: 0.1 * depth, noise=0.05)), 3.5)
    loud = breaking_depth(law(noisy(lambda depth: 0.1 * depth, noise=0.2)), 3.5)
    assert loud.high - loud.low > quiet.high - quiet.low


def test_a_power_law_is_said_to_stay_within_the_limit():
    sentence = describe(law(noisy(lambda depth: 0.5 * math.log10(1 + depth))), 3.5, "D", "decades")
    assert "stays within 3.5 decades" in sentence or "not expected to reach" in sentence


def test_data_that_do_not_decide_say_so():
    points = noisy(lambda depth: 0.02 * depth, depths=(10, 12, 14), noise=0.15, seeds=2)
    found = law(points)
    assert not found.decided
    assert not breaking_depth(found, 3.5).known


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("mlp-relu", {}),
        ("mlp-batchnorm", {}),
        ("mlp-relu-he", {}),
        ("pre-ln", {}),
        ("pre-ln", {"init": "xavier"}),
        ("deepnorm", {}),
        ("lns", {}),
        ("peri-ln", {}),
    ],
)
def test_fitted_to_24_blocks_it_predicts_96(name, arguments):
    """The mean over new seeds at 96 blocks lies in the interval; a plain stack starts after its first layer."""
    offset = 1 if name.startswith("mlp") else 0
    points = [
        Point(depth - offset, decades(name, seed, layers=depth, **arguments)) for depth in DEPTHS for seed in range(3)
    ]
    predicted = law(points).predict(96 - offset)
    measured = statistics.fmean(decades(name, seed, layers=96, **arguments) for seed in (10, 11))
    assert predicted.low <= measured <= predicted.high
