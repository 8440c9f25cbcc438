import pytest

from gradscope.metrics.facts import Facts
from gradscope.metrics.residual import effective_path_length
from tests.support.recordings import stack


def test_the_path_length_is_the_binomial_mean():
    # x + a W x, a = 0.5, L = 20: Binomial(20, a^2 / (1 + a^2)) has mean 4 (law 21).
    assert effective_path_length(Facts(stack(20, forward_ratio=0.5)).sites) == pytest.approx(4.0)


def test_ratios_and_what_remains_of_the_gradient():
    site = Facts(stack(4, forward_ratio=0.3)).sites[0]
    assert site.forward_ratio == pytest.approx(0.3)
    assert site.backward_ratio == pytest.approx(0.3)
    assert site.remaining_gradient == pytest.approx((1 + 0.09) ** 0.5)


def test_no_sites_have_no_path_length():
    assert effective_path_length(Facts(stack(4, residual=False)).sites) is None
