import math

import pytest
import torch
from torch import nn

import gradscope
from gradscope.record import Recording
from gradscope.rules import diagnose
from gradscope.rules.nonfinite_cures import cure
from tests.rules.altered import copied, edit
from tests.support.recordings import add, stack


def finding(recording: Recording):
    (found,) = [f for f in diagnose(recording).findings if f.code == "GS104"]
    return found


def reaching(recording):
    """The first parameter's gradient is hit."""
    return edit(
        recording, "parameter_stats", "grad_norm",
        lambda row: math.nan if row["parameter"] == 0 else row["grad_norm"],
    )  # fmt: skip


def poisoned():
    return reaching(masked())


def masked():
    calls = stack(4).tables["calls"]["module"]
    return edit(
        stack(4), "call_stats", "forward_norm",
        lambda row: math.nan if calls[row["call"]] in ("layers.2.fc", "layers.2", "layers.3") else row["forward_norm"],
    )


def test_the_first_bad_output_is_the_birthplace():
    found = finding(poisoned())
    assert found.module == "layers.2.fc"
    assert found.evidence["direction"] == "forward"
    assert diagnose(poisoned()).verdict == "will-not-train"


def test_what_reaches_neither_loss_nor_gradient_is_a_remark():
    found = finding(masked())
    assert (found.module, found.severity) == ("layers.2.fc", "info")
    assert "on purpose" in found.message
    assert diagnose(masked()).verdict == "will-train"


def test_what_is_not_known_to_be_harmless_is_an_error():
    unknown = edit(masked(), "parameter_stats", "grad_norm", lambda _: None)
    assert finding(unknown).severity == "error"
    bad_loss = edit(masked(), "steps", "loss", lambda row: math.inf if row["step"] == 10 else row["loss"])
    assert finding(bad_loss).severity == "error"


def test_a_bad_gradient_is_born_nearest_to_the_loss():
    calls = stack(4).tables["calls"]["module"]
    bad = ("layers.0.fc", "layers.1.fc", "layers.2.fc")
    recording = edit(
        stack(4), "call_stats", "grad_norm",
        lambda row: math.inf if calls[row["call"]] in bad else row["grad_norm"],
    )
    found = finding(reaching(recording))
    assert (found.module, found.evidence["direction"]) == ("layers.2.fc", "backward")
    assert "The loss is finite" in found.message


def test_an_event_wins_and_brings_operation_file_and_line():
    recording = copied(poisoned())
    add(recording.tables["events"], step=0, kind="nonfinite_backward", module="layers.3", call=0, op="sqrt")
    add(recording.tables["events"], step=0, kind="nonfinite_forward", module="layers.1.norm", call=0, op="softmax",
        file="model.py", line=33)
    found = finding(recording)
    assert (found.module, found.file, found.line) == ("layers.1.norm", "model.py", 33)
    assert "masked" in found.advice


def test_a_loss_that_is_nan_alone_is_blamed_on_the_loss_function():
    recording = edit(stack(4), "steps", "loss", lambda _: math.nan)
    assert "loss function" in finding(recording).message


def test_finite_numbers_give_nothing():
    assert not [f for f in diagnose(stack(4)).findings if f.code == "GS104"]


def born(**event):
    recording = copied(poisoned())
    add(recording.tables["events"], **{"kind": "nonfinite_forward", "module": "", "call": 0, "step": 0, **event})
    return finding(recording)


def test_a_birth_after_the_model_has_returned_is_the_losss():
    found = born(call=-1, op="log", file="train.py", line=12)
    assert "born in the loss, after the model has returned, by log" in found.message
    assert (found.call, found.file, found.line) == (0, "train.py", 12)


def test_weights_that_went_wrong_between_watched_steps():
    steps = poisoned().tables["steps"]["step"]
    found = born(step=steps[-1], op="parameter", module="layers.0.fc")
    assert f"between the watched steps {steps[-2]} and {steps[-1]}" in found.message
    assert "learning rate" in found.advice


def test_a_product_that_overflows_after_some_steps_has_been_growing():
    last = poisoned().tables["steps"]["step"][-1]
    grown = born(step=last, op="addmm", detail="inf came out of finite inputs (output 8x2)")
    assert "Lower the learning rate" in grown.advice
    assert "Lower the learning rate" not in born(step=0, op="addmm", detail="inf came out of finite inputs").advice


def skipped(steps):
    recording = copied(poisoned())
    for step in steps:
        add(recording.tables["events"], step=step, kind="skipped", module="", call=0, op="GradScaler")
    return diagnose(recording)


def test_steps_that_a_scaler_skips_do_not_count_unless_it_skips_all():
    recording = poisoned()
    bad = {row["step"] for row in recording.rows("call_stats") if not math.isfinite(row["forward_norm"] or 0.0)}
    bad |= {row["step"] for row in recording.rows("steps") if not math.isfinite(row["loss"])}
    steps = recording.tables["steps"]["step"]
    assert [f.code for f in skipped(steps).findings].count("GS104") == 1
    if bad < set(steps):
        assert "GS104" not in [f.code for f in skipped(sorted(bad)).findings]


BORN = {
    "exp": (lambda h, net: (h * 1e4 + 1e4).exp(), "exp", "logsumexp"),
    "one element": (lambda h, net: h[:1].std(0) * h, "std", "single element"),
    "arc": (lambda h, net: torch.acos(h * 0 + 1), "acos", "clamp"),
    "half": (lambda h, net: (h.half() + 1000).square().float(), "pow", ""),
    "text": (lambda h, net: h * float("nan"), "constant", "constant"),
    "tensor": (lambda h, net: h + torch.tensor(float("nan")), "constant", "constant"),
    "buffer": (lambda h, net: h + net.bad, "buffer", "buffers"),
    "overwritten": (lambda h, net: torch.full_like(h, float("nan")).copy_(h) / (h - h), "div", "division"),
}  # fmt: skip


class Net(nn.Module):
    def __init__(self, through):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.through = nn.Linear(8, 8), nn.Linear(8, 2), through
        self.register_buffer("bad", torch.full((8,), float("nan")))

    def forward(self, x):
        return self.b(self.through(self.a(x), self))


@pytest.mark.filterwarnings("ignore:std")
@pytest.mark.parametrize("name", BORN)
def test_what_makes_the_number_is_named_with_a_cure(name):
    """A NaN of the program's text or of a buffer is one that was brought in; an unused NaN buffer is not to blame."""
    through, operation, word = BORN[name]
    inspection = gradscope.inspect(Net(through), torch.randn(6, 8), lambda out, _: out.square().mean())
    (finding,) = (finding for finding in inspection.findings if finding.code == "GS104")
    assert finding.evidence["operation"].lower() == operation
    assert word in finding.advice


def test_beyond_a_format_names_its_largest_number():
    assert "float16, 65,504" in cure("mul", "inf came out of finite inputs (output 8x2 float16)", backward=False)
    assert "float32, 3e38" in cure("mul", "inf came out of finite inputs (output 8x2 float32)", backward=False)
