import time

import pytest

from gradscope.record import Recording, empty_table
from gradscope.rules import diagnose
from tests.rules.altered import edit, rename, scaled_loss
from tests.support.recordings import build, stack


def without(recording: Recording, *tables: str) -> Recording:
    return Recording(recording.provenance, {**recording.tables, **{name: empty_table(name) for name in tables}})


def test_parameter_gradients_alone_do_not_judge_a_deep_model():
    diagnosis = diagnose(without(stack(12), "stream", "stream_stats", "call_stats"))
    assert diagnosis.verdict == "cannot-say"
    assert "parameter gradients" in diagnosis.reason


def test_they_do_judge_a_shallow_one():
    assert diagnose(without(stack(2), "stream", "stream_stats", "call_stats")).verdict == "will-train"


def test_a_model_without_a_single_path_is_judged_by_the_rest():
    diagnosis = diagnose(without(stack(12), "stream", "stream_stats"))
    assert diagnosis.verdict == "will-train"
    assert "no single path" in diagnosis.reason


def test_a_head_that_starts_at_zero_hides_the_path_at_the_first_step_only():
    recording = edit(stack(12), "stream_stats", "grad_norm", lambda row: row["grad_norm"] * (row["step"] > 0))
    assert diagnose(recording).reason.startswith("Every layer gets a gradient of usable size")


def test_nothing_measured_is_not_healthy():
    assert diagnose(build({})).verdict == "cannot-say"
    assert diagnose(without(stack(4), "stream_stats", "parameter_stats")).verdict == "cannot-say"


@pytest.mark.parametrize("steps", [(0,), (0, 3, 10), (5, 7)])
def test_any_choice_of_steps_is_judged(steps):
    assert diagnose(stack(12, steps=steps)).verdict == "will-train"
    assert diagnose(stack(12, steps=steps, decades_per_block=-1.0)).verdict == "will-not-train"


def test_findings_come_errors_first():
    recording = scaled_loss(stack(40, residual=False, decades_per_block=0.3), 1e-3)
    diagnosis = diagnose(rename(recording, inputs_synthetic=True))
    severities = [finding.severity for finding in diagnosis.findings]
    assert severities == sorted(severities, key=["error", "warning", "info"].index)
    assert len(set(severities)) == 3


def test_the_machine_views_names_are_always_there():
    for recording in (build({}), stack(4)):
        metrics = diagnose(recording).metrics
        assert {"decades", "decades_per_block", "num_blocks", "jacobian_anisotropy", "token_cosine"} <= set(metrics)


def test_a_raised_threshold_lets_a_network_pass():
    recording = stack(12, decades_per_block=-0.6)
    assert diagnose(recording).verdict == "will-not-train"
    assert diagnose(recording, {"GS101.decades": 8, "GS101.warn_decades": 7.5}).verdict == "will-train"


def over_steps(recording: Recording, count: int) -> Recording:
    """The same step measured again and again."""
    measured = ("steps", "call_stats", "parameter_stats", "site_stats", "stream_stats")
    tables = dict(recording.tables)
    for name in measured:
        table = {column: values * count for column, values in tables[name].items()}
        rows = len(recording.tables[name]["step"])
        tables[name] = {**table, "step": [step for step in range(count) for _ in range(rows)]}
    return Recording(recording.provenance, tables)


def test_a_thousand_blocks_over_fifty_steps_are_judged_in_about_half_a_second():
    recording = over_steps(stack(1000, steps=(0,)), 50)
    start = time.process_time()
    diagnose(recording)
    assert time.process_time() - start < 2.0  # processor time; room for slow machines
