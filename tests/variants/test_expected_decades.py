"""The depth profile of each variant at initialisation, by plain autograd, against the reference table and the laws."""

from __future__ import annotations

import math

import pytest
import torch

from gradscope.variants import VARIANTS, find, subject
from gradscope.variants.expected import EXPECTED_DECADES, EXPECTED_DEPTHS
from tests.variants.gradients import decades, end_gradients, mean_decades

NOISY = {"no-residual": 0.6, "no-residual-post-ln": 0.6, "no-residual-no-norm": 0.6, "residual-dual": 0.35}
"""Tolerance in decades where seeds differ by 0.2-0.3; elsewhere TOLERANCE and a fifth of the value."""
TOLERANCE = 0.15

CASES = [(name, init, depths[0]) for name, inits in EXPECTED_DECADES.items() for init, depths in inits.items()]


def tolerance(name: str, expected: float) -> float:
    return NOISY.get(name, TOLERANCE) + 0.2 * abs(expected)


@pytest.mark.parametrize(("name", "init", "expected"), CASES)
def test_ten_blocks(name, init, expected):
    measured = mean_decades(name, seeds=3, layers=EXPECTED_DEPTHS[0], init=init)
    assert measured == pytest.approx(expected, abs=tolerance(name, expected))


@pytest.mark.parametrize("name", ["pre-ln", "post-ln", "peri-ln", "output-norm", "deepnorm", "lns"])
def test_forty_eight_blocks(name):
    expected = EXPECTED_DECADES[name]["xavier"][2]
    # Collapsed tokens make deep Post-LN seed-dependent: 0.3 decades between seeds, as much between activations.
    spread = 0.5 if name == "post-ln" else 0.2
    measured = mean_decades(name, seeds=2, layers=48, init="xavier")
    assert measured == pytest.approx(expected, abs=tolerance(name, expected) + spread)


def test_the_table_names_variants_that_exist():
    assert all(find(name).expected_decades for name in EXPECTED_DECADES)
    assert {variant.name for variant in VARIANTS} >= set(EXPECTED_DECADES)


@pytest.mark.parametrize("name", ["rezero", "zero-last", "skipinit"])
def test_zero_initialised_branches_pass_the_gradient_bitwise(name):
    start, end = end_gradients(subject(name, {"layers": 24}, 0))
    assert torch.equal(start, end)


def test_fixup_has_no_activation_gradient_before_its_first_step():
    start, end = end_gradients(subject("fixup", {"layers": 6}, 0))
    assert not start.any()
    assert not end.any()


def test_unnormalised_residuals_overflow_at_forty_eight_blocks():
    start, _ = end_gradients(subject("residual-no-norm", {"layers": 48}, 0))
    assert not torch.isfinite(start).all()


@pytest.mark.parametrize("layers", [10, 24, 48])
def test_peri_ln_follows_its_law(layers):
    """0.5 log10(1 + 2L): every branch adds unit variance to a stream that starts with unit variance."""
    measured = mean_decades("peri-ln", seeds=2, layers=layers, init="xavier")
    assert measured == pytest.approx(0.5 * math.log10(1 + 2 * layers), abs=0.2)


def test_hyper_connections_carry_pre_lns_gradient_once_per_stream():
    """Four equal streams: |g_0| = 4 |g| against |g_L| = sqrt(4) |g|, so D exceeds Pre-LN's by log10 2."""
    for name in ("hyper-connections", "mhc"):
        assert decades(name, layers=10) == pytest.approx(decades("pre-ln", layers=10) + math.log10(2), abs=0.05)
