"""A change at one place is not one along the depth: what lies on its two sides trains."""

import pytest

from gradscope.rules import diagnose
from tests.rules.altered import edit, rename
from tests.support.recordings import add, stack


def jump(decades, *, at=6, blocks=12, later=None, per_block=0.0):
    """A stack in which one block changes the gradient by so many decades; `later`: what the steps make of it."""

    def grad(row):
        size = decades if later is None or row["step"] == 0 else later
        return row["grad_norm"] * (10**size if row["station"] < at else 1.0)

    return edit(stack(blocks, decades_per_block=per_block), "stream_stats", "grad_norm", grad)


def resized(recording, at=6):
    """The stream below a station belongs to a tower of another size."""
    return edit(
        recording, "stream_stats", "num_elements", lambda row: row["num_elements"] * (3 if row["station"] < at else 1)
    )


def severities(recording, code):
    return [f.severity for f in diagnose(recording).findings if f.code == code]


@pytest.mark.parametrize(("decades", "severity", "verdict"), [
    (-3.0, "warning", "will-train"),
    (-5.0, "warning", "will-train"),  # ten plain layers with a factor of 1e-6 on one of them train under Adam
    (-8.0, "error", "will-not-train"),  # with 1e-8 they do not
])  # fmt: skip
def test_what_one_block_loses_is_an_error_under_adam_only_where_next_to_nothing_is_left(decades, severity, verdict):
    recording = jump(decades)
    assert severities(recording, "GS101") == [severity]
    assert diagnose(recording).verdict == verdict


def test_a_loss_at_one_place_that_the_steps_make_worse_is_a_risk():
    assert diagnose(jump(-1.0, later=-5.0)).verdict == "at-risk"
    assert diagnose(jump(-5.0, later=-1.0)).verdict == "will-train"


def test_the_same_loss_along_the_depth_is_an_error():
    assert severities(stack(12, decades_per_block=-5.0 / 12), "GS101") == ["error"]


def test_one_block_does_not_hide_a_loss_along_the_depth():
    assert severities(jump(-2.0, per_block=-0.4), "GS101") == ["error"]


@pytest.mark.parametrize(("later", "severity"), [(-3.0, "error"), (-1.0, "warning")])
def test_under_sgd_a_loss_at_one_place_counts_as_far_as_the_steps_leave_it(later, severity):
    assert severities(rename(jump(-3.0, later=later), optimizer="sgd"), "GS101") == [severity]


@pytest.mark.parametrize(("per_block", "severity"), [(0.0, ["warning"]), (0.3, ["error"])])
def test_growth_where_the_stream_is_handed_to_another_part_is_not_one_with_depth(per_block, severity):
    assert severities(resized(jump(5.0, per_block=per_block)), "GS102") == severity


def test_growth_at_one_place_of_a_stream_of_one_size_is_an_error_under_adam_and_sgd():
    assert severities(jump(5.0), "GS102") == ["error"]
    assert severities(rename(resized(jump(5.0)), optimizer="sgd"), "GS102") == ["error"]


@pytest.mark.parametrize(("recording", "severity"), [
    (stack(8, decades_per_block=0.25), "error"), (jump(2.4, blocks=8), "warning"),
])  # fmt: skip
def test_few_directions_and_a_change_at_one_place_do_not_condemn_together(recording, severity):
    add(recording.tables["observations"], step=0, metric="jacobian_anisotropy", module="", call=0, value=90.0)
    assert severities(recording, "GS108") == [severity]


def test_what_weights_of_next_to_nothing_swallow_is_told_by_their_own_rule():
    names = jump(-20.0).tables["parameters"]["name"]
    faint = edit(
        jump(-20.0), "parameter_stats", "weight_norm",
        lambda row: 1e-9 if names[row["parameter"]].startswith(("layers.0", "layers.1.")) else row["weight_norm"],
    )  # fmt: skip
    assert severities(faint, "GS101") == ["warning"]
    assert severities(faint, "GS110") == ["warning"]
