import pytest

from gradscope.record import Recording
from gradscope.rules import diagnose
from tests.rules.altered import copied, edit, rename
from tests.support.recordings import add, stack


def found(recording, code):
    return [f for f in diagnose(recording).findings if f.code == code]


def observing(metric, values, step=0, recording=None):
    """A stack with observations of one metric: module -> value."""
    recording = copied(recording or stack(8))
    for module, value in values.items():
        add(recording.tables["observations"], step=step, metric=metric, module=module, call=0, value=value)
    return recording


def cosines(values, step=0, recording=None):
    return observing("token_cosine", {f"layers.{i}": value for i, value in enumerate(values)}, step, recording)


def test_collapsed_tokens_are_an_error_from_the_block_on_where_it_happens():
    recording = cosines([0.2, 0.5, 0.8, 0.95, 0.991, 0.995, 0.999, 1.0])
    (finding,) = found(recording, "GS301")
    assert (finding.severity, finding.module) == ("error", "layers.4")
    assert diagnose(recording).verdict == "will-not-train"
    assert diagnose(recording).metrics["token_cosine"] == 1.0


@pytest.mark.parametrize(("kappa", "severity"), [(25.0, "warning"), (90.0, "error")])
def test_an_offset_that_all_tokens_share_costs_no_direction_and_is_no_collapse(kappa, severity):
    recording = observing("jacobian_anisotropy", {"": kappa}, recording=cosines([0.5] * 7 + [0.995]))
    assert [f.severity for f in found(recording, "GS301")] == [severity]


@pytest.mark.parametrize(("later", "made_up", "severity"), [
    (0.99999, False, "error"), (0.9, False, "warning"), (0.99999, True, "warning"),
])  # fmt: skip
def test_tokens_that_drown_in_an_offset_are_lost_whatever_directions_are_left(later, made_up, severity):
    recording = cosines([0.99999] * 8, 0, observing("jacobian_anisotropy", {"": 10.0}))
    recording = rename(cosines([later] * 8, 10, recording), inputs_synthetic=made_up)
    (finding,) = found(recording, "GS301")
    assert finding.severity == severity
    drowned = severity == "error"
    assert ("what enters the stream" in finding.advice) == drowned


def test_samples_that_are_alike_are_not_called_tokens():
    recording = observing("sample_cosine", {f"layers.{i}": 0.99999 for i in range(8)})
    recording = edit(recording, "parameter_stats", "update_norm", lambda row: 0.5 * row["weight_norm"])
    assert "all samples look the same" in diagnose(recording).reason


def test_similar_tokens_alone_do_not_make_a_risk():
    recording = cosines([0.1] * 7 + [0.95])
    assert found(recording, "GS301")[0].severity == "warning"
    assert diagnose(recording).verdict == "will-train"


def test_two_views_of_the_same_loss_are_one_reason():
    recording = observing("jacobian_anisotropy", {"": 50.0}, recording=cosines([0.1] * 7 + [0.95]))
    assert diagnose(recording).verdict == "will-train"


def test_two_middling_signs_of_different_kind_make_a_risk():
    recording = cosines([0.1] * 7 + [0.95])
    recording = edit(recording, "parameter_stats", "update_norm", lambda row: 0.5 * row["weight_norm"])
    assert diagnose(recording).verdict == "at-risk"


def test_collapse_after_some_steps_is_found_although_the_start_looks_well():
    (finding,) = found(cosines([0.3] * 7 + [0.999], 10, cosines([0.3] * 7 + [0.95])), "GS301")
    assert (finding.severity, finding.evidence["later"]) == ("error", True)


def test_tokens_that_were_apart_at_first_may_part_again():
    (finding,) = found(cosines([0.3] * 7 + [0.999], 10, cosines([0.3] * 8)), "GS301")
    assert (finding.severity, finding.evidence["later"]) == ("warning", True)


def test_later_similarity_has_the_higher_warning_level():
    assert not found(cosines([0.3] * 7 + [0.95], 10, cosines([0.3] * 8)), "GS301")


@pytest.mark.parametrize(("kappa", "severity", "verdict"), [
    (3.0, None, "will-train"), (50.0, "warning", "will-train"), (90.0, "error", "will-not-train"),
])
def test_jacobian_anisotropy_with_samples_alike_under_sgd(kappa, severity, verdict):
    recording = observing("sample_cosine", {"": 0.98 if kappa > 50 else 0.5})
    recording = rename(observing("jacobian_anisotropy", {"": kappa}, recording=recording), optimizer="sgd")
    assert [f.severity for f in found(recording, "GS108")] == ([severity] if severity else [])
    assert diagnose(recording).verdict == verdict


def test_few_directions_alone_only_warn_under_adam():
    recording = observing("jacobian_anisotropy", {"": 90.0})
    assert [f.severity for f in found(recording, "GS108")] == ["warning"]
    assert diagnose(recording).verdict == "will-train"


def test_few_directions_alone_do_not_condemn_where_the_level_was_not_calibrated():
    recording = observing("jacobian_anisotropy", {"": 300.0})
    narrowing = edit(recording, "stream_stats", "num_elements", lambda row: row["num_elements"] // (1 + row["station"]))
    coupled = observing("couples_samples", {"": 0.2}, recording=recording)
    rounding = observing("couples_samples", {"": 1e-14}, recording=recording)
    spread_tokens = cosines([0.3] * 8, recording=recording)
    assert not found(narrowing, "GS108")
    assert not found(coupled, "GS108")
    assert found(rounding, "GS108")
    assert [f.severity for f in found(spread_tokens, "GS108")] == ["info"]
    assert [f.severity for f in found(cosines([0.985] * 8, recording=recording), "GS108")] == ["error"]


def test_few_directions_and_a_decade_of_change_condemn_together():
    changing = stack(8, decades_per_block=-0.2)
    assert not found(changing, "GS101")
    recording = observing("jacobian_anisotropy", {"": 65.0}, recording=changing)
    assert [f.severity for f in found(recording, "GS108")] == ["error"]
    fewer = observing("jacobian_anisotropy", {"": 50.0}, recording=changing)
    assert [f.severity for f in found(fewer, "GS108")] == ["warning"]
    assert [f.severity for f in found(rename(fewer, optimizer="sgd"), "GS108")] == ["error"]


def test_a_gradient_whose_size_fails_already_is_told_once():
    recording = observing("jacobian_anisotropy", {"": 90.0}, recording=stack(8, decades_per_block=-0.9))
    assert [f.severity for f in found(recording, "GS108")] == ["info"]
    assert [f.severity for f in found(recording, "GS101")] == ["error"]


def test_saturation_is_information():
    (finding,) = found(observing("saturated_fraction", {"layers.2.fc": 0.1, "layers.3.fc": 0.8}), "GS302")
    assert (finding.severity, finding.module) == ("info", "layers.3.fc")


def test_dead_units_warn_beyond_half_and_never_for_a_tenth():
    assert not found(observing("dead_fraction", {"layers.2.fc": 0.1}), "GS303")
    assert found(observing("dead_fraction", {"layers.2.fc": 0.7}), "GS303")[0].severity == "warning"


def test_hard_attention_and_large_logits():
    assert "single keys" in found(observing("attention_entropy", {"layers.2.fc": 0.02}), "GS304")[0].message
    assert "logit" in found(observing("attention_logit_max", {"layers.2.fc": 80.0}), "GS304")[0].message
    healthy = observing("attention_entropy", {"layers.2.fc": 0.9})
    assert not found(observing("attention_logit_max", {"layers.2.fc": 3.0}, recording=healthy), "GS304")


def attention(ratios):
    """A stack whose blocks hold query, key and value projections; queries get `ratio` of the values' gradient."""
    recording = copied(stack(len(ratios)))
    for number, ratio in enumerate(ratios):
        for role in ("query", "key", "value"):
            name = f"layers.{number}.{role}"
            row = add(recording.tables["parameters"], name=f"{name}.weight", module=name, shape=[8, 8], dtype="float32",
                      num_elements=64, requires_grad=True, role=role, takes_part=True)
            for step in (0, 3, 10):
                add(recording.tables["parameter_stats"], step=step, parameter=row, weight_norm=1.0, update_norm=1e-3,
                    grad_norm=ratio if role == "query" else 1.0)
    return recording


def test_starved_queries_in_most_layers_are_an_error_where_tokens_are_alike():
    recording = cosines([0.9, 0.95, 0.99, 0.9995], recording=attention([1.0, 1e-5, 1e-6, 1e-8]))
    (finding,) = found(recording, "GS305")
    assert (finding.severity, finding.module) == ("error", "layers.1")
    assert "GS301" in finding.advice
    assert finding.evidence["log10_ratio"] == pytest.approx(-5.0)
    assert diagnose(attention([1.0, 1e-5, 1e-6, 1e-8])).metrics["query_key_to_value_log10"] == pytest.approx(-8.0)


@pytest.mark.parametrize(("metric", "value", "words"), [
    ("attention_logit_max", 1e-5, "next to zero"), ("attention_entropy", 0.02, "hard choice"),
    ("token_cosine", 0.2, "inputs"),
])  # fmt: skip
def test_starved_queries_warn_where_tokens_differ(metric, value, words):
    (finding,) = found(observing(metric, {"layers.1": value}, recording=attention([1e-5, 1e-6, 1e-8])), "GS305")
    assert finding.severity == "warning"
    assert words in finding.advice


def test_one_starved_layer_of_many_only_warns():
    (finding,) = found(attention([1.0, 1.0, 1.0, 1e-6]), "GS305")
    assert finding.severity == "warning"


def test_balanced_attention_gives_nothing():
    assert not found(attention([0.1, 0.01, 0.5]), "GS305")


def test_massive_activations():
    (finding,) = found(observing("activation_peak", {"layers.1": 6.0, "layers.5": 300.0}), "GS306")
    assert (finding.severity, finding.module) == ("warning", "layers.5")


def test_one_steep_block_in_a_flat_stack_is_a_cliff():
    recording = edit(stack(10), "stream_stats", "grad_norm",
                     lambda row: row["grad_norm"] * (0.02 if row["station"] < 5 else 1.0))
    (finding,) = found(recording, "GS103")
    assert (finding.module, finding.severity) == ("layers.4", "warning")
    assert not found(stack(10, decades_per_block=-0.2), "GS103")


def test_a_steep_block_among_uneven_ones_is_no_cliff():
    # Every block changes the gradient by 1 to 2 decades up or down: 1.9 is nothing unusual there.
    jumps = [0.0, 1.0, -1.2, 1.4, -1.6, 1.8, -1.0, 1.2, -1.4, 1.6, -1.9]
    recording = edit(stack(10), "stream_stats", "grad_norm", lambda row: 10 ** sum(jumps[: row["station"] + 1]))
    assert not found(recording, "GS103")


def recurrent(decades, calls=40):
    recording = copied(stack(2))
    rows = [add(recording.tables["calls"], module="cell", call=t, shape=[4, 8], dtype="float32") for t in range(calls)]
    add(recording.tables["modules"], name="cell", type="RNNCell", role="recurrent", num_parameters=64, called=True)
    add(recording.tables["parameters"], name="cell.weight_hh", module="cell", shape=[8, 8], dtype="float32",
        num_elements=64, requires_grad=True, takes_part=True)
    for step in (0, 3, 10):
        for t, row in enumerate(rows):
            add(recording.tables["call_stats"], step=step, call=row, num_elements=32, forward_norm=1.0,
                grad_norm=10 ** (decades * (1 - t / (calls - 1))))
    return recording


@pytest.mark.parametrize(
    ("decades", "severity"), [(-18, "error"), (-9, "warning"), (-5, None), (5, "error"), (1, None)]
)
def test_time(decades, severity):
    findings = found(recurrent(decades), "GS107")
    assert [f.severity for f in findings] == ([severity] if severity else [])
    for finding in findings:
        assert finding.module == "cell"
        assert finding.evidence["decades"] == pytest.approx(decades)


def test_a_gradient_that_underflows_through_time_vanishes():
    recording = edit(
        recurrent(-80), "call_stats", "grad_norm", lambda row: 0.0 if row["grad_norm"] < 1e-38 else row["grad_norm"]
    )
    (finding,) = found(recording, "GS107")
    assert finding.severity == "error"
    assert finding.evidence["unreached_calls"] > 10


def test_a_first_call_whose_result_nobody_uses_has_not_faded():
    recording = edit(
        recurrent(-1), "call_stats", "grad_norm", lambda row: 0.0 if row["call"] == 0 else row["grad_norm"]
    )
    assert not found(recording, "GS107")


def test_one_activation_shared_by_all_layers_is_not_time():
    recording = recurrent(-18)
    kept = {column: values[:-1] for column, values in recording.tables["parameters"].items()}
    without_weights = Recording(recording.provenance, {**recording.tables, "parameters": kept})
    assert recording.tables["parameters"]["name"][-1] == "cell.weight_hh"
    assert not found(without_weights, "GS107")


def test_one_head_for_maps_of_several_sizes_is_not_time():
    recording = recurrent(-18)
    for call, row in enumerate(recording.tables["calls"]["module"]):
        if row == "cell":
            recording.tables["calls"]["shape"][call] = [4, 8, 2 + call, 2 + call]
    assert not found(recording, "GS107")


def test_two_calls_are_weight_sharing_not_time():
    assert not found(recurrent(-18, calls=2), "GS107")


def test_a_softmax_over_the_batch_is_a_risk():
    recording = observing("attention_softmax_axis", {"layers.2": 0.0, "layers.3": 0.0})
    (finding,) = found(recording, "GS307")
    assert (finding.severity, finding.module) == ("warning", "layers.2")
    assert "samples of the batch" in finding.message
    assert diagnose(recording).verdict == "at-risk"
