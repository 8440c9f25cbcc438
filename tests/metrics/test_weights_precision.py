import math

import pytest

from gradscope.metrics.precision import (
    FLOAT16_MAX,
    FORMAT_FLOOR_LOG2,
    Magnitudes,
    fraction_below,
    largest_log2,
    recommended_loss_scale_log2,
)
from gradscope.metrics.weights import adam_damping, rms


@pytest.mark.parametrize(("grad", "measured"), [(1e-7, 0.824), (1e-8, 0.434), (1e-9, 0.088), (1e-10, 0.0099)])
def test_adam_damping_is_near_the_measured_first_step(grad, measured):
    # The measured number averages over Gaussian elements (law 25): within a fifth of the closed form at the RMS.
    assert adam_damping(grad) == pytest.approx(measured, rel=0.2)


def test_rms_of_a_norm():
    assert rms(6.0, 9) == pytest.approx(2.0)
    assert rms(None, 9) is None


def test_a_histogram_tells_what_float16_would_lose():
    # 3 elements at 2^-30, 1 at 2^-24 (kept), 4 zeros.
    item = Magnitudes("w", "parameter", -30, (3, 0, 0, 0, 0, 0, 1), 4, 0)
    assert item.fraction_below(FORMAT_FLOOR_LOG2["float16"]) == 0.75
    assert item.max_log2 == -24
    assert fraction_below([item, item], FORMAT_FLOOR_LOG2["float16"]) == 0.75


def test_the_recommended_scale_keeps_the_largest_element_finite_and_is_the_largest_that_does():
    for peak in (-20, -3, 0, 9):
        scale = recommended_loss_scale_log2(peak)
        # Elements of that octave lie in [2^peak, 2^(peak+1)).
        assert 2.0 ** (peak + 1) * 2**scale <= 2**15 < FLOAT16_MAX
        assert scale == 24 or 2.0 ** (peak + 1) * 2 ** (scale + 1) > 2**15


def test_nothing_measured_recommends_nothing():
    assert recommended_loss_scale_log2(None) is None
    assert recommended_loss_scale_log2(-math.inf) is None
    assert largest_log2([]) is None
