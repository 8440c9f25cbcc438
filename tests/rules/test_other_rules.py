import csv
import math
from pathlib import Path

import pytest

from gradscope.rules import diagnose, levels
from tests.rules.altered import copied, edit, rename, scaled_loss
from tests.rules.test_signal_rules import observing
from tests.support.recordings import add, stack


def found(recording, code):
    return [f for f in diagnose(recording).findings if f.code == code]


def in_dtype(dtype, num_blocks=4):
    return edit(stack(num_blocks), "calls", "dtype", lambda _: dtype)


def histogram(recording, first_log2, counts, zeros=0):
    recording = copied(recording)
    add(recording.tables["histograms"], step=0, name="layers.1.fc", kind="activation", first_log2=first_log2,
        counts=counts, zeros=zeros, nonfinite=0)
    return recording


def test_float32_gets_an_outlook_with_the_loss_scale_that_cures_it():
    # Half of the elements at 2^-30, half at 2^-12: a scale of 2^24 saves all of them.
    (finding,) = found(histogram(stack(4), -30, [10, *[0] * 17, 10]), "GS401")
    assert finding.severity == "info"
    assert finding.evidence["underflow_fp16"] == 0.5
    assert finding.evidence["underflow_fp16_scaled"] == 0.0
    assert 2.0 ** (-11 + finding.evidence["recommended_loss_scale_log2"]) <= 2**15


def test_gradients_well_inside_float16_get_no_outlook():
    assert not found(histogram(stack(4), -12, [10, 10]), "GS401")


def test_float16_gradients_at_the_floor_are_an_error():
    (finding,) = found(histogram(in_dtype("float16"), -24, [5, 5, 5, 5, 20, 20]), "GS401")
    assert finding.severity == "error"
    assert diagnose(histogram(in_dtype("float16"), -24, [5, 5, 5, 5, 20, 20])).verdict != "will-train"


@pytest.mark.parametrize(("dtype", "value", "severity"), [
    ("float16", 70000.0, "error"), ("float16", math.inf, "error"), ("float16", 30000.0, "warning"),
    ("float16", 100.0, None), ("float32", 1e6, "info"), ("bfloat16", 1e6, "info"), ("float32", 1e3, None),
])
def test_overflow(dtype, value, severity):
    recording = edit(in_dtype(dtype), "call_stats", "forward_absmax", lambda row: value if row["call"] == 3 else 1.0)
    assert [f.severity for f in found(recording, "GS402")] == ([severity] if severity else [])


def test_absorbed_branches():
    (finding,) = found(observing("absorption", {"layers.1 + fc": 0.05, "layers.2 + fc": 0.6}), "GS403")
    assert (finding.severity, finding.module) == ("warning", "layers.2")


def test_branches_with_a_learnt_factor_may_be_absorbed_at_first():
    recording = observing("absorption", {"layers.1 + fc": 0.6}, recording=stack(4))
    recording = edit(recording, "sites", "kind", lambda _: "scaled")
    assert [f.severity for f in found(recording, "GS403")] == ["info"]


def test_a_stream_in_bfloat16_is_remarked_and_a_deep_one_warned_of():
    assert found(in_dtype("bfloat16"), "GS404")[0].severity == "info"
    assert found(in_dtype("bfloat16", 300), "GS404")[0].severity == "warning"
    assert not found(stack(300), "GS404")


def test_adam_epsilon_depends_on_the_scale_of_the_loss_and_sgd_has_none():
    small = scaled_loss(stack(4), 1e-6)
    (finding,) = found(small, "GS405")
    assert finding.evidence["grad_rms"] == pytest.approx(0.1 / 64 * 1e-6)
    assert not found(stack(4), "GS405")
    assert not found(rename(small, optimizer="sgd"), "GS405")


def updated(ratio):
    return edit(stack(4), "parameter_stats", "update_norm", lambda row: ratio * row["weight_norm"])


def test_updates_that_are_too_large_too_small_or_missing():
    assert found(updated(0.5), "GS501")[0].evidence["update_to_weight"] == pytest.approx(0.5)
    assert found(updated(1e-8), "GS502")[0].evidence["update_to_weight"] == pytest.approx(1e-8)
    assert "single bit" in found(updated(0.0), "GS502")[0].message
    for code in ("GS501", "GS502"):
        assert not found(updated(1e-3), code)
        assert not found(rename(updated(0.0), optimizer=None), code)


def losing(recording, factor):
    return edit(recording, "steps", "loss", lambda row: row["loss"] * (factor if row["step"] else 1))


def test_steps_that_outweigh_the_weights_are_an_error_once_the_loss_rises():
    """38 networks with both, none of which trained: benchmarks/calibration/rates.csv."""
    assert [f.severity for f in found(losing(updated(0.2), 3), "GS501")] == ["warning"]
    assert [f.severity for f in found(losing(updated(2.0), 3), "GS501")] == ["error"]
    assert diagnose(losing(updated(2.0), 3)).verdict == "at-risk"
    fading = lambda row: row["update_norm"] * (0.01 if row["step"] else 1)  # noqa: E731
    first = edit(updated(2.0), "parameter_stats", "update_norm", fading)
    assert not found(losing(first, 1), "GS501")
    assert found(losing(first, 3), "GS501")
    growing = lambda row: row["update_norm"] * (1 if row["step"] else 0.01)  # noqa: E731
    later = edit(updated(0.6), "parameter_stats", "update_norm", growing)
    assert [f.severity for f in found(losing(later, 1), "GS501")] == ["warning"]
    assert [f.severity for f in found(losing(later, 3), "GS501")] == ["error"]
    assert [f.severity for f in found(updated(1.0), "GS501")] == ["error"]


@pytest.mark.parametrize("start", [0.0, 1e-9])
def test_weights_that_start_all_but_zero_do_not_count_as_replaced(start):
    """Zero-initialised tables and SAM's 1e-10: their first steps are many times what they start from."""
    recording = losing(updated(1e-3), 3)
    rows = {row for row, name in enumerate(recording.tables["parameters"]["name"]) if name.endswith("weight")}
    tiny = edit(recording, "parameter_stats", "weight_norm",
                lambda row: start if row["parameter"] in rows and row["step"] == 0 else 0.01)  # fmt: skip
    assert not found(edit(tiny, "parameter_stats", "update_norm", lambda _: 0.02), "GS501")


def test_the_table_of_rates_says_what_the_level_says_of_it():
    """Levels that quote counts are held to the table they were counted in."""
    with (Path(__file__).parents[2] / "benchmarks/calibration/rates.csv").open() as file:
        rows = list(csv.DictReader(file))
    outweighed = [
        row
        for row in rows
        if float(row["update_0"]) >= levels.REPLACING_UPDATE.value
        or any(not float(row[later]) < levels.LATER_UPDATE.value for later in ("update_3", "update_9"))
    ]

    def rises(row):
        ratio = max(float(row["loss_3"]), float(row["loss_9"])) / float(row["loss_0"])
        return not ratio < levels.RISING_LOSS.value  # a NaN rises, too

    trained = [float(row["accuracy"]) >= 0.9 for row in outweighed if rises(row)]
    others = [float(row["accuracy"]) >= 0.9 for row in outweighed if not rises(row)]
    assert (len(trained), sum(trained), len(others), sum(others)) == (38, 0, 5, 2)


def test_an_optimizer_that_moves_nothing_decides_the_verdict():
    assert diagnose(updated(0.0)).verdict == "will-not-train"
    assert diagnose(updated(1e-8)).verdict == "at-risk"


def only(row, recording, share):
    """Only one parameter changes, and it has this share of the squared gradient."""
    others = len(recording.tables["parameters"]["name"]) - 1
    still = edit(recording, "parameter_stats", "update_norm", lambda at: at["update_norm"] * (at["parameter"] == row))
    return edit(still, "parameter_stats", "grad_norm",
                lambda at: (share if at["parameter"] == row else (1 - share) / others) ** 0.5)  # fmt: skip


def test_a_part_trained_alone_is_a_risk_only_without_the_last_layer_and_with_next_to_nothing_of_the_gradient():
    """Of 8 such networks none began to learn (parts.csv); a head alone learns from random features behind BatchNorm."""
    (finding,) = found(only(0, updated(1e-3), 0.3), "GS502")
    assert (finding.severity, finding.evidence["followed_share"]) == ("warning", pytest.approx(0.3))
    assert "requires_grad_(False)" in finding.advice
    assert "30.0% of the squared gradient" in finding.message
    assert diagnose(only(0, updated(1e-3), 0.3)).verdict == "will-train"
    assert [f.severity for f in found(only(0, updated(1e-3), 0.01), "GS502")] == ["warning"]
    assert diagnose(only(0, updated(1e-3), 0.01)).verdict == "at-risk"
    head = len(updated(1e-3).tables["parameters"]["name"]) - 1
    assert diagnose(only(head, updated(1e-3), 0.002)).verdict == "will-train"


def test_the_table_of_parts_says_what_the_level_says_of_it():
    with (Path(__file__).parents[2] / "benchmarks/calibration/parts.csv").open() as file:
        rows = list(csv.DictReader(file))

    def starved(row):
        has_last_layer = row["part"] in ("head", "last half")
        return float(row["followed_share"]) < levels.FOLLOWED_GRADIENT.value and not has_last_layer

    below = [float(row["loss_share"]) for row in rows if starved(row)]
    above = [float(row["loss_share"]) < 0.5 for row in rows if not starved(row)]
    assert (len(below), len(above), sum(above)) == (8, 92, 52)
    assert min(below) > 0.93


def test_small_steps_of_a_warm_up_or_of_a_small_loss_are_no_error():
    rising = edit(updated(1e-8), "steps", "lr", lambda row: 1e-9 * (1 + row["step"]))
    assert [f.severity for f in found(rising, "GS502")] == ["warning"]
    sgd = rename(updated(1e-8), optimizer="sgd")
    assert [f.severity for f in found(sgd, "GS502")] == ["warning"]
    assert [f.severity for f in found(rename(sgd, own_loop=True), "GS502")] == ["error"]


def test_half_precision_weights_that_do_not_move_need_master_weights():
    (finding,) = found(edit(updated(0.0), "parameters", "dtype", lambda _: "bfloat16"), "GS502")
    assert "master" in finding.advice


@pytest.mark.parametrize(("samples", "severity"), [(1, "error"), (2, "warning"), (4, "warning"), (32, None)])
def test_statistics_of_few_values(samples, severity):
    findings = found(observing("batch_samples", {"layers.0.norm": 64.0, "layers.1.norm": float(samples)}), "GS601")
    assert [f.severity for f in findings] == ([severity] if severity else [])


def test_a_doubled_softmax_and_its_kin():
    assert "logits" in found(observing("probabilities_as_logits", {"": 1.0}), "GS602")[0].advice
    assert "nll_loss" in found(observing("unnormalised_log_probabilities", {"": 1.0}), "GS602")[0].message
    assert found(observing("loss_classes", {"": 1.0}), "GS602")[0].severity == "error"
    healthy = observing("loss_classes", {"": 10.0}, recording=observing("probabilities_as_logits", {"": 0.0}))
    assert not found(healthy, "GS602")


def without_part(recording, module, *, called):
    recording = edit(recording, "parameters", "takes_part", lambda row: not row["name"].startswith(module))
    names = recording.tables["parameters"]["name"]
    recording = edit(recording, "parameter_stats", "grad_norm",
                     lambda row: None if names[row["parameter"]].startswith(module) else row["grad_norm"])
    return edit(recording, "modules", "called", lambda row: called or row["name"] != module)


def test_parameters_that_did_not_run_are_information():
    recording = without_part(stack(4), "layers.2.fc", called=False)
    (finding,) = found(recording, "GS603")
    assert (finding.severity, finding.module) == ("info", "layers.2.fc")
    assert "not called" in finding.message


@pytest.mark.parametrize(("called", "why"), [(False, "`layers.2.fc` got no input."),
                                             (True, "no gradient leads from the loss to `layers.2.fc`.")])  # fmt: skip
def test_a_verdict_says_what_of_the_model_it_does_not_hold_for_and_why(called, why):
    diagnosis = diagnose(without_part(stack(4), "layers.2.fc", called=called))
    assert diagnosis.verdict == "will-train"
    assert diagnosis.reason.startswith("Every layer that took part gets a gradient")
    assert diagnosis.reason.endswith(f" of the parameters took no part: {why}")


def test_a_small_part_without_a_gradient_does_not_change_what_a_verdict_says():
    assert "took no part" not in diagnose(without_part(stack(40), "layers.2.fc", called=False)).reason


def test_what_was_made_up_is_said():
    inputs = "8 x 128 token ids; --inputs gives yours"
    (finding,) = found(rename(stack(4), inputs_synthetic=True, inputs=inputs), "GS604")
    assert "gives yours" not in finding.message  # its advice says so
    assert "8 x 128 token ids" in finding.message
    assert not found(stack(4), "GS604")


def test_names_are_left_as_they_are():
    names = ["[b]x[/b]", "{0}", "<script>", "層"]
    recording = stack(4, decades_per_block=-1.5, names=names)
    diagnosis = diagnose(recording)
    assert diagnosis.findings[0].module == "[b]x[/b]"
    assert "[b]x[/b]" in diagnosis.reason


@pytest.mark.parametrize(("faded", "severity"), [((0, 3, 10), "error"), ((3, 10), "warning"), ((), None)])
def test_adam_stands_still_only_where_it_did_from_the_first_step_on(faded, severity):
    recording = edit(
        stack(4), "parameter_stats", "grad_norm",
        lambda row: row["grad_norm"] * (1e-10 if row["step"] in faded else 1.0),
    )
    assert [f.severity for f in found(recording, "GS405")] == ([severity] if severity else [])
