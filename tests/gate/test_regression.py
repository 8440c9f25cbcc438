"""Regression since a saved run: what got worse is named, what another seed would change is not."""

from __future__ import annotations

import pytest

from gradscope.errors import ConfigError
from gradscope.gate.regression import RULE, regressions
from gradscope.record import Recording
from gradscope.rules.finding import Finding
from tests.support.recordings import stack

LEVELS = RULE.defaults


def with_loss_in_block(block: int, decades: float, num_blocks: int = 12) -> Recording:
    """A flat stack in which one block loses decades on the way to the input."""
    recording = stack(num_blocks)
    stats = recording.tables["stream_stats"]
    for row, station in enumerate(stats["station"]):
        if station <= block:
            stats["grad_norm"][row] *= 10**-decades
    return recording


def compare(before: Recording, after: Recording, *others: Recording) -> tuple[Finding, ...]:
    return regressions(before, after, "main.json", LEVELS, others)


def test_the_same_run_is_no_regression() -> None:
    assert compare(stack(12), stack(12)) == ()


def test_the_block_that_lost_is_named_with_how_much() -> None:
    (found,) = compare(stack(12), with_loss_in_block(7, 1.2))
    assert (found.code, found.severity, found.module) == ("GS701", "error", "layers.7")
    assert "Most of it is block layers.7, which lost 1.2 decades" in found.message
    assert (found.file, found.line) == ("model.py", 5)
    assert found.evidence["decades"] == pytest.approx(-1.2)


def test_between_the_levels_it_warns() -> None:
    (found,) = compare(stack(12), with_loss_in_block(7, 0.7))
    assert found.severity == "warning"


def test_a_small_change_and_an_improvement_are_none() -> None:
    assert compare(stack(12), with_loss_in_block(7, 0.4)) == ()
    assert compare(with_loss_in_block(7, 1.2), stack(12)) == ()
    assert compare(stack(12, decades_per_block=-0.3), stack(12, decades_per_block=-0.1)) == ()


def test_growth_is_a_regression_too() -> None:
    (found,) = compare(stack(12), stack(12, decades_per_block=0.2))
    assert "gained 2.4 decades" in found.message


def test_a_block_that_another_makes_up_for_is_still_found() -> None:
    after = stack(12)
    stats = after.tables["stream_stats"]
    for row, station in enumerate(stats["station"]):
        if station == 5:
            stats["grad_norm"][row] *= 10**-1.5
    (found,) = compare(stack(12), after)
    assert found.module in ("layers.4", "layers.5")
    assert "1.5 decades" in found.message


def test_the_scale_of_the_loss_does_not_matter() -> None:
    after = stack(12)
    stats = after.tables["stream_stats"]
    stats["grad_norm"][:] = [norm * 1e-6 for norm in stats["grad_norm"]]
    assert compare(stack(12), after) == ()


def test_the_spread_over_seeds_widens_the_tolerance() -> None:
    after = with_loss_in_block(7, 1.2)
    assert compare(stack(12), after)
    assert compare(stack(12), after, with_loss_in_block(3, 0.1), with_loss_in_block(3, 2.1)) == ()


def test_a_gradient_that_is_gone_is_an_error() -> None:
    (found,) = compare(stack(12), with_loss_in_block(7, 400))
    assert found.severity == "error"
    assert "zero or not finite" in found.message


def test_renamed_and_added_blocks_do_not_hide_the_whole() -> None:
    after = stack(14, names=[f"stage.{n}" for n in range(14)], decades_per_block=-0.2)
    (found,) = compare(stack(12), after)
    assert found.module == ""
    assert "lost 2.8 decades" in found.message


def test_runs_that_cannot_be_compared_are_refused_not_passed() -> None:
    with pytest.raises(ConfigError, match=r"no measured profile in common"):
        compare(stack(12, steps=(1,)), stack(12, steps=(0,)))
