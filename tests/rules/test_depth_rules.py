import pytest

from gradscope.rules import diagnose
from gradscope.rules.finding import Finding
from tests.rules.altered import edit, rename, repeated_batch, scaled_loss
from tests.support.recordings import add, stack


def only(recording, code, **thresholds) -> Finding | None:
    levels = {name.replace("_", ".", 1): value for name, value in thresholds.items()}
    found = [f for f in diagnose(recording, levels).findings if f.code == code]
    assert len(found) <= 1
    return found[0] if found else None


def test_a_flat_stack_is_healthy():
    diagnosis = diagnose(stack(24))
    assert diagnosis.verdict == "will-train"
    assert not [f for f in diagnosis.findings if f.severity != "info"]


@pytest.mark.parametrize(("per_block", "code"), [(-0.6, "GS101"), (0.5, "GS102")])
def test_a_steady_change_is_blamed_on_the_first_block(per_block, code):
    finding = only(stack(12, decades_per_block=per_block), code)
    assert finding.severity == "error"
    assert finding.module == "layers.0"
    assert (finding.file, finding.line) == ("model.py", 5)
    assert finding.evidence["decades"] == pytest.approx(12 * per_block)
    assert diagnose(stack(12, decades_per_block=per_block)).verdict == "will-not-train"


def last_step(recording, change):
    """The same run whose gradients along the stream are changed at the last watched step, by a factor per station."""
    last = max(recording.watched_steps)
    return edit(
        recording, "stream_stats", "grad_norm",
        lambda row: row["grad_norm"] * (change(row["station"]) if row["step"] == last else 1.0),
    )


def with_losses(recording, losses, rows=8, classes=10):
    """The same run under a cross-entropy over so many logits, whose loss went like this."""
    recording = edit(recording, "steps", "loss", lambda row: losses[row["step"]])
    add(recording.tables["calls"], module="", call=0, shape=[rows, classes], dtype="float32")
    for step in recording.watched_steps:
        add(recording.tables["observations"], step=step, metric="loss_classes", module="", call=0, value=float(classes))
    return recording


@pytest.mark.parametrize(
    ("losses", "rows", "verdict"),
    [
        ((11.8, 1.9, 0.01), 8, "will-train"),
        ((11.8, 1.9, 0.7), 8, "at-risk"),  # two answers for all
        ((0.012, 0.011, 0.01), 8, "at-risk"),  # a small weight on the loss
        ((11.8, 1.9, 0.01), 1, "at-risk"),  # one row needs one answer
    ],
)
def test_growth_is_no_risk_where_the_loss_is_all_but_gone(losses, rows, verdict):
    """Inception-v3 and -v4 at standard initialisation tell their pictures apart within ten steps."""
    recording = with_losses(stack(12, decades_per_block=0.24), dict(zip((0, 3, 10), losses, strict=True)), rows)
    assert only(recording, "GS102").severity == "warning"
    assert diagnose(recording).verdict == verdict


def test_a_loss_that_is_gone_excuses_no_error():
    recording = with_losses(stack(12, decades_per_block=0.5), {0: 11.8, 3: 1.9, 10: 0.01})
    assert diagnose(recording).verdict == "will-not-train"


def test_adam_may_train_what_sgd_cannot():
    recording = stack(12, decades_per_block=-0.4)
    assert only(recording, "GS101").severity == "error"
    assert "rescales" in only(recording, "GS101").message
    assert diagnose(recording).verdict == "at-risk"
    assert diagnose(rename(recording, optimizer="sgd")).verdict == "will-not-train"


@pytest.mark.parametrize(("per_block", "code"), [(-0.6, "GS101"), (0.5, "GS102")])
def test_what_the_first_steps_undo_is_a_risk_under_adam_and_the_end_under_sgd(per_block, code):
    healed = last_step(stack(12, decades_per_block=per_block), lambda station: 10 ** (per_block * station))
    assert only(healed, code).severity == "warning"
    assert diagnose(healed).verdict == "at-risk"
    assert diagnose(rename(healed, optimizer="sgd")).verdict == "will-not-train"


def test_a_cliff_is_blamed_alone():
    recording = edit(
        stack(12), "stream_stats", "grad_norm", lambda row: row["grad_norm"] * (1e-6 if row["station"] < 7 else 1.0)
    )
    finding = only(recording, "GS101")
    assert finding.module == "layers.6"
    assert "alone" in finding.message


def test_sgd_is_held_to_a_stricter_level_than_adam():
    recording = stack(10, decades_per_block=-0.25)
    assert only(recording, "GS101").severity == "warning"
    assert only(rename(recording, optimizer="sgd"), "GS101").severity == "error"


def test_the_level_is_the_users_to_set():
    recording = stack(10, decades_per_block=-0.5)
    assert only(recording, "GS101", GS101_decades=6.0, GS101_warn_decades=5.5) is None
    assert diagnose(recording, {"GS101.fatal_decades": 4.5}).verdict == "will-not-train"


def test_growth_that_the_stream_explains_is_not_exploding():
    # Pre-LN: forward norm grows by a ratio of 0.75 per addition, sqrt(1 + 0.75^2) = 10^0.0969; gradient likewise.
    growth = 0.5 * 0.19382
    recording = stack(40, decades_per_block=growth, forward_ratio=0.75)
    assert only(recording, "GS102") is None
    diagnosis = diagnose(recording)
    assert diagnosis.metrics["decades"] == pytest.approx(40 * growth)
    assert diagnosis.metrics["excess_decades"] == pytest.approx(0.0, abs=1e-3)
    plain = edit(recording, "sites", "placement", lambda _: "none")
    plain = edit(plain, "sites", "branches", lambda row: row["branches"][1:])
    assert only(plain, "GS102").severity == "error"


def test_a_gradient_that_underflows_to_zero_on_the_way_vanishes_and_is_not_dead():
    recording = edit(
        stack(40, decades_per_block=-1.2), "stream_stats", "grad_norm",
        lambda row: 0.0 if row["grad_norm"] < 1e-38 else row["grad_norm"],
    )
    finding = only(recording, "GS101")
    assert finding.severity == "error"
    assert finding.evidence["reaches_zero"] is True
    assert only(recording, "GS105") is None


def test_collapse_of_the_gradient_after_some_steps_is_found():
    recording = edit(
        stack(12), "stream_stats", "grad_norm",
        lambda row: row["grad_norm"] * (10 ** (-0.5 * (12 - row["station"])) if row["step"] == 10 else 1.0),
    )
    assert only(recording, "GS101").evidence["step"] == 10


@pytest.mark.parametrize("per_block", [0.0, -0.2, -0.5, 0.35, 0.6])
def test_the_verdict_does_not_depend_on_loss_scale_batch_or_width(per_block):
    def essence(recording):
        diagnosis = diagnose(recording)
        # GS4 judges what number formats and Adam's epsilon lose, which does depend on the scale; it never decides this.
        relative = [f for f in diagnosis.findings if not f.code.startswith("GS4")]
        return diagnosis.verdict, [(f.code, f.severity, f.module) for f in relative]

    recording = stack(12, decades_per_block=per_block)
    expected = essence(recording)
    assert essence(scaled_loss(recording, 1000.0)) == expected
    assert essence(scaled_loss(recording, 1e-6)) == expected
    assert essence(repeated_batch(recording, 4)) == expected
    assert essence(stack(12, decades_per_block=per_block, width=512)) == expected


@pytest.mark.parametrize(("per_block", "code"), [(-3.0, "GS101"), (3.0, "GS102")])
def test_a_change_over_two_blocks_is_not_one_of_depth(per_block, code):
    assert only(stack(2, decades_per_block=per_block), code).severity == "warning"
    assert only(stack(3, decades_per_block=per_block), code).severity == "error"
