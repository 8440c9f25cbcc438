import math

import pytest

from gradscope.metrics.law import SiteGrowth, excess_decades, predicted_decades


def test_the_law_of_a_pre_ln_stack_telescopes_to_the_growth_of_the_stream():
    # v_l = 1 + c l (law 10): ||g_0|| / ||g_L|| = sqrt(1 + c L), measured 10.10 for c = 1, L = 100.
    length = 100
    sites = [SiteGrowth(True, math.sqrt(1 + n), math.sqrt(2 + n)) for n in range(length)]
    assert 10 ** predicted_decades(sites) == pytest.approx(math.sqrt(1 + length))


def test_branches_without_a_norm_explain_nothing():
    assert predicted_decades([SiteGrowth(False, 1.0, 1.4)] * 10) is None


def test_a_projection_resets_the_stream_without_taking_back_the_growth():
    stage = [SiteGrowth(True, 1.0, 2.0), SiteGrowth(True, 2.0, 4.0)]
    assert predicted_decades(stage + stage) == pytest.approx(2 * math.log10(4))


def test_a_constant_on_the_skip_acts_on_the_gradient_too():
    assert predicted_decades([SiteGrowth(True, 1.0, 1.0, 0.5)]) == pytest.approx(math.log10(0.5))


@pytest.mark.parametrize(
    ("decades", "predicted", "excess"),
    [(0.9, 0.9, 0.0), (6.0, 1.0, 5.0), (0.2, 0.9, 0.0), (-3.0, 0.9, -3.0), (4.0, None, 4.0), (None, 1.0, None)],
)
def test_only_growth_is_explained(decades, predicted, excess):
    found = excess_decades(decades, predicted)
    assert found == (None if excess is None else pytest.approx(excess))
