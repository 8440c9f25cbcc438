import math

import pytest

from gradscope.rules import diagnose
from tests.rules.altered import edit
from tests.support.recordings import stack


def found(recording, code):
    return [f for f in diagnose(recording).findings if f.code == code]


def branch(recording, ratio, sites=None):
    """The branches of the chosen sites are `ratio` times their skips."""
    return edit(
        recording, "site_stats", "branch_norm",
        lambda row: row["skip_norm"] * ratio if sites is None or row["site"] in sites else row["branch_norm"],
    )


def test_a_branch_that_swamps_the_stream_is_told_with_the_line_of_the_addition():
    (finding,) = found(branch(stack(8), 25.0, {5}), "GS201")
    assert (finding.severity, finding.module, finding.file, finding.line) == ("warning", "layers.5", "model.py", 11)
    assert finding.evidence["forward_ratio"] == pytest.approx(25.0)


def test_the_first_block_may_be_larger_than_a_small_embedding():
    assert not found(branch(stack(8), 25.0, {0, 1}), "GS201")


def test_idle_branches_are_information_only():
    (finding,) = found(branch(stack(8), 1e-6), "GS202")
    assert finding.severity == "info"
    assert finding.evidence["sites"] == 8
    assert not found(stack(8), "GS202")


def test_a_branch_that_is_exactly_zero_is_not_called_idle():
    assert not found(branch(stack(8), 0.0), "GS202")


def cancelling(steps):
    recording = edit(
        stack(8), "site_stats", "cosine", lambda row: -1.0 if row["site"] == 3 and row["step"] in steps else 0.0
    )
    return edit(
        recording, "site_stats", "branch_grad_norm",
        lambda row: row["skip_grad_norm"] if row["site"] == 3 else row["branch_grad_norm"],
    )


def test_f_of_x_equal_to_minus_x_cancels():
    (finding,) = found(cancelling({0, 3, 10}), "GS203")
    assert (finding.severity, finding.module) == ("error", "layers.3")
    assert finding.evidence["remaining"] == pytest.approx(0.0, abs=1e-9)
    assert diagnose(cancelling({0, 3, 10})).verdict == "at-risk"


def test_opposition_in_a_single_step_is_chance():
    assert not found(cancelling({0, 10}), "GS203")


def scaled(recording, scale, placement):
    recording = edit(recording, "sites", "skip_scale", lambda _: scale)
    return edit(recording, "sites", "placement", lambda _: placement)


def test_halved_skips_multiply():
    (finding,) = found(scaled(stack(20), 0.5, "pre"), "GS204")
    assert finding.evidence["decades"] == pytest.approx(20 * math.log10(0.5))
    assert "1e6 times smaller" in finding.message


def test_a_norm_after_the_sum_takes_the_factor_out():
    assert not found(scaled(stack(20), 0.5, "post"), "GS204")


def test_learnt_factors_are_no_constants():
    assert not found(scaled(stack(20), None, "pre"), "GS204")


def deepnorm(gain):
    # 8 additions are 4 blocks of two: alpha = 8^(1/4), beta = 32^(-1/4). Weights of 64 x 64: Xavier rms is 1/8.
    recording = scaled(stack(8), 8**0.25, "post")
    return edit(recording, "parameter_stats", "weight_norm", lambda _: gain * 8.0)


def test_alpha_without_beta_is_half_of_deepnorm():
    (finding,) = found(deepnorm(1.0), "GS204")
    assert finding.evidence["beta"] == pytest.approx(32**-0.25)
    assert finding.evidence["branch_gain"] == pytest.approx(1.0)
    assert not found(deepnorm(32**-0.25), "GS204")


def test_a_deep_plain_stack_is_told_to_add_skips():
    (finding,) = found(stack(40, residual=False), "GS205")
    assert (finding.severity, finding.module) == ("warning", "layers.0")
    assert not found(stack(20, residual=False), "GS205")
    assert not found(stack(40), "GS205")
    assert diagnose(stack(40, residual=False)).verdict == "will-train"


def test_four_attention_layers_without_skips_are_enough():
    recording = edit(stack(4, residual=False), "modules", "role",
                     lambda row: "attention" if row["name"].endswith(".fc") else row["role"])
    (finding,) = found(recording, "GS205")
    assert "attention" in finding.message
