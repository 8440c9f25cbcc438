import pytest
import torch
from torch import nn

import gradscope
from gradscope.record import TABLES, empty_table
from gradscope.rules import diagnose
from gradscope.rules.grounds import ground_of
from tests.rules.altered import copied, edit, rename, silence
from tests.support.recordings import add, build, stack


def found(recording, code):
    return [f for f in diagnose(recording).findings if f.code == code]


def chain(modules, zero_calls=(), zero_parameters=(), steps=(0, 3, 10), roles=None, dtype="float32", **provenance):
    """A chain of modules, each called once in the given order: name -> whether it has a weight and a bias."""
    tables = {table: empty_table(table) for table in TABLES}
    for name, has in modules.items():
        add(tables["modules"], name=name, type="Linear", role="linear", num_parameters=10 * has, called=True)
        add(tables["calls"], module=name, call=0, shape=[8, 8], dtype=dtype)
        for kind, shape in (("weight", [8, 8]), ("bias", [8])) if has else ():
            add(tables["parameters"], name=f"{name}.{kind}", module=name, shape=shape, dtype=dtype, requires_grad=True,
                num_elements=64 if kind == "weight" else 8, takes_part=True, role=(roles or {}).get(name))
    for step in steps:
        add(tables["steps"], step=step, loss=1.6, grad_norm=1.0, lr=1e-3)
        for row, module in enumerate(tables["calls"]["module"]):
            add(tables["call_stats"], step=step, call=row, num_elements=64, forward_norm=8.0,
                grad_norm=0.0 if module in zero_calls else 0.1)
        for row, name in enumerate(tables["parameters"]["name"]):
            zero = name in zero_parameters
            add(tables["parameter_stats"], step=step, parameter=row, grad_norm=0.0 if zero else 0.1, weight_norm=1.0,
                update_norm=0.0 if zero else 1e-2)
    return build(tables, **{"optimizer": "adam", "lr": 1e-3, **provenance})


DEAD = {"0": True, "1": False, "2": True, "3": False, "4": True, "5": False, "6": True}


def dead_relu(**options):
    return chain(
        DEAD, {"0", "1", "2"}, {"0.weight", "0.bias", "2.weight", "2.bias", "4.weight"}, **options
    )


def test_the_layer_in_front_of_the_dead_activation_is_blamed_not_the_cone():
    (finding,) = found(dead_relu(), "GS105")
    assert (finding.severity, finding.module) == ("error", "2")
    assert finding.evidence["next_module"] == "3"


def test_only_one_watched_step_cannot_tell_dead_from_asleep():
    (finding,) = found(dead_relu(steps=(0,)), "GS105")
    assert finding.severity == "warning"
    assert "step" in finding.advice


def test_without_an_optimizer_nothing_can_wake_up():
    (finding,) = found(dead_relu(optimizer=None), "GS105")
    assert finding.severity == "warning"


def test_two_separate_dead_places_are_two_findings_in_forward_order():
    dead = {"a.weight", "a.bias", "c.weight", "c.bias"}
    recording = chain({"a": True, "b": True, "c": True, "d": True}, {"a", "c"}, dead)
    assert [f.module for f in found(recording, "GS105")] == ["a", "c"]


def test_a_zero_bias_beside_a_learning_weight_is_a_shift_that_cancels():
    assert not found(chain(DEAD, (), {"6.bias", "2.bias"}), "GS105")


def test_a_gradient_that_moves_from_block_to_block_is_not_dead():
    modules, parameters = {"layers.2.norm", "layers.2.fc"}, {"layers.2.norm.weight", "layers.2.fc.weight"}
    recording = silence(stack(6), modules, parameters, {0, 10})
    assert not found(recording, "GS105")


def test_an_update_between_the_watched_steps_proves_life():
    recording = edit(dead_relu(), "parameter_stats", "update_norm", lambda _: 5e-3)
    assert not found(recording, "GS105")


@pytest.mark.parametrize("own_loop", [False, True])
def test_weights_that_changed_prove_life_where_nothing_decays_them(own_loop):
    # Stochastic depth under SGD: off at every watched step, on at some between them.
    recording = edit(
        dead_relu(optimizer="sgd", own_loop=own_loop), "parameter_stats", "weight_norm",
        lambda row: row["weight_norm"] * (1 + 1e-6 * row["step"]),
    )
    assert bool(found(recording, "GS105")) is own_loop


def test_weight_decay_alone_proves_no_life():
    recording = edit(dead_relu(), "parameter_stats", "update_norm", lambda row: row["weight_norm"] * 1e-3 * 0.01)
    assert [f.module for f in found(recording, "GS105")] == ["2"]


def test_a_block_behind_a_residual_stream_puts_the_model_at_risk_only():
    modules, parameters = {"layers.2.norm", "layers.2.fc"}, {"layers.2.norm.weight", "layers.2.fc.weight"}
    diagnosis = diagnose(silence(stack(6), modules, parameters))
    assert [f.module for f in diagnosis.findings if f.code == "GS105"] == ["layers.2.fc"]
    assert diagnosis.verdict == "at-risk"


def test_a_small_part_that_nothing_seen_closes_is_no_error():
    modules, parameters = {"layers.2.norm", "layers.2.fc"}, {"layers.2.norm.weight", "layers.2.fc.weight"}
    (finding,) = found(silence(stack(40), modules, parameters), "GS105")
    assert (finding.severity, finding.module) == ("warning", "layers.2.fc")
    assert "may be meant" in finding.message
    assert finding.evidence["may_be_meant"]
    assert ground_of(finding) is None, "it does not count against the model"


def test_a_loss_that_was_made_up_need_not_reach_every_head():
    modules, parameters = {"layers.2.norm", "layers.2.fc"}, {"layers.2.norm.weight", "layers.2.fc.weight"}
    recording = silence(stack(6), modules, parameters)
    assert [f.severity for f in found(recording, "GS105")] == ["error"]
    assert [f.severity for f in found(rename(recording, loss_synthetic=True), "GS105")] == ["warning"]
    assert [f.severity for f in found(dead_relu(loss_synthetic=True), "GS105")] == ["error"]


class Gated(nn.Module):
    """A signal of its own goes through a gated layer without biases and is added to the input."""

    def __init__(self, first=0.3):
        super().__init__()
        self.norm, self.gate, self.up, self.down = nn.RMSNorm(8), *(nn.Linear(8, 8, bias=False) for _ in range(3))
        self.body, self.head = nn.Linear(8, 64), nn.Linear(64, 3)
        nn.init.normal_(self.gate.weight, std=first)
        nn.init.normal_(self.up.weight, std=first)

    def forward(self, x, signal):
        h = self.norm(signal)
        return self.head(torch.relu(self.body(x + self.down(nn.functional.silu(self.gate(h)) * self.up(h)))))


class Masked(nn.Module):
    """A stem whose places beyond the given lengths are masked, in front of a body."""

    def __init__(self, width=64):
        super().__init__()
        self.stem, self.body, self.head = nn.Linear(8, 16), nn.Linear(16, width), nn.Linear(width, 3)

    def forward(self, x, lengths):
        shown = torch.arange(16) < lengths[:, None]
        return self.head(torch.relu(self.body(self.stem(x) * shown)))


def inspected(net, *inputs):
    torch.manual_seed(0)
    targets = torch.randint(3, (32,))
    return gradscope.inspect(net, inputs, lambda out, _: nn.functional.cross_entropy(out, targets))


def test_a_part_that_is_fed_with_zeros_is_not_a_layer_of_units_that_are_off():
    (finding,) = found(inspected(Gated(), torch.randn(32, 8), torch.zeros(32, 8)).recording, "GS105")
    assert (finding.severity, finding.module) == ("warning", "norm")
    assert "receives nothing but zeros" in finding.message
    assert not found(inspected(Gated(), torch.randn(32, 8), torch.randn(32, 8)).recording, "GS105")
    closed = found(inspected(Gated(first=0.0), torch.randn(32, 8), torch.randn(32, 8)).recording, "GS105")
    assert [f.severity for f in closed] == ["error"], "two factors that start at zero close each other"


def test_an_input_that_has_faded_to_zero_on_its_way_is_told_once():
    torch.manual_seed(0)
    layers = [nn.Linear(16, 16, bias=False) for _ in range(9)]
    for layer in layers:
        nn.init.normal_(layer.weight, std=2e-6)
    recording = inspected(nn.Sequential(nn.Linear(8, 16), *layers, nn.Linear(16, 3)), torch.randn(32, 8)).recording
    assert [f.severity for f in found(recording, "GS101")] == ["error"]
    assert not found(recording, "GS105")
    assert not found(recording, "GS111")


def test_a_mask_made_from_inputs_that_were_made_up_is_no_error():
    recording = inspected(Masked(), torch.randn(32, 8), torch.zeros(32, dtype=torch.long)).recording
    for made_up, severity in ((False, "error"), (True, "warning")):
        (finding,) = (f for f in found(rename(recording, inputs_synthetic=made_up), "GS105") if f.module == "stem")
        assert (finding.severity, finding.evidence["zero_from_operation"]) == (severity, "mul by a constant")
        assert ("with yours it may be open" in finding.message) == made_up
        assert "lengths" in finding.advice
    assert not found(inspected(Masked(), torch.randn(32, 8), torch.full((32,), 16)).recording, "GS105")


def test_a_small_part_behind_a_mask_of_the_user_is_told_what_closes_the_way():
    recording = inspected(Masked(width=400), torch.randn(32, 8), torch.zeros(32, dtype=torch.long)).recording
    (finding,) = (f for f in found(rename(recording, inputs_synthetic=False), "GS105") if f.module == "stem")
    assert finding.severity == "warning"
    assert "Nothing was seen" not in finding.message
    assert "may be meant" in finding.message


def test_zero_at_first_and_alive_later_is_by_design_where_a_weight_starts_at_zero():
    recording = silence(stack(6), {"layers.2.norm"}, {"layers.2.norm.weight"}, {0})
    names = recording.tables["parameters"]["name"]
    asleep = edit(
        recording, "parameter_stats", "weight_norm",
        lambda row: 0.0 if names[row["parameter"]] == "layers.2.fc.weight" and row["step"] == 0 else row["weight_norm"],
    )
    (finding,) = found(asleep, "GS109")
    assert (finding.severity, finding.module, finding.evidence["alive_at_step"]) == ("info", "layers.2.norm", 3)
    assert not found(asleep, "GS105")
    assert diagnose(asleep).verdict == "will-train"
    assert not found(recording, "GS109")


def test_frozen_parameters_are_nobodys_fault():
    recording = edit(dead_relu(), "parameters", "requires_grad", lambda row: row["name"] not in (
        "0.weight", "0.bias", "2.weight", "2.bias", "4.weight"))
    assert not found(recording, "GS105")
    assert not found(recording, "GS106")


def cut(recording, *prefixes):
    """The parameters under the prefixes get no gradient at all."""
    names = recording.tables["parameters"]["name"]
    recording = edit(recording, "parameters", "takes_part", lambda row: not row["name"].startswith(prefixes))
    return edit(
        recording, "parameter_stats", "grad_norm",
        lambda row: None if names[row["parameter"]].startswith(prefixes) else row["grad_norm"],
    )


ENCODER = {"encoder.0": True, "encoder.2": True, "head.0": True, "head.2": True}


def test_an_encoder_before_all_that_trains_is_disconnected_even_where_the_cut_was_not_found():
    recording = copied(cut(chain(ENCODER), "encoder."))
    assert not found(recording, "GS106")
    add(recording.tables["confessions"], what="where gradients are cut", why="running the forward again raised")
    (finding,) = found(recording, "GS106")
    assert (finding.severity, finding.module) == ("warning", "encoder")  # no file is known: a library's own design
    add(recording.tables["modules"], name="", type="Net", role="container", num_parameters=0, called=True,
        file="model.py", line=3)
    (finding,) = found(recording, "GS106")
    assert (finding.severity, finding.module) == ("error", "encoder")
    assert diagnose(recording).verdict == "will-not-train"


def test_the_place_of_the_cut_is_told():
    recording = copied(cut(chain(ENCODER), "encoder."))
    add(recording.tables["events"], step=0, kind="cut", module="", call=0, op="detach", file="model.py", line=17,
        detail="no gradient for 4 parameters: encoder.0.weight, encoder.0.bias, encoder.2.weight, encoder.2.bias")
    (finding,) = found(recording, "GS106")
    assert (finding.severity, finding.module, finding.file, finding.line) == ("error", "encoder", "model.py", 17)
    assert diagnose(recording).verdict == "will-not-train"
    assert "detach" in finding.message


def test_a_head_that_the_loss_does_not_use_is_no_failure():
    recording = cut(chain({"body.0": True, "body.1": True, "head": True, "auxiliary": True}), "auxiliary")
    assert not found(recording, "GS106")
    assert [f.module for f in found(recording, "GS603")] == ["auxiliary"]


def test_modules_that_did_not_run_are_no_failure():
    recording = cut(chain({"expert0": True, "expert1": True, "head": True}), "expert0")
    recording = edit(recording, "modules", "called", lambda row: row["name"] != "expert0")
    assert not found(recording, "GS106")


def test_unknown_gradients_are_not_missing_ones():
    recording = edit(stack(4), "parameter_stats", "grad_norm", lambda _: None)
    recording = edit(recording, "parameters", "takes_part", lambda _: True)
    assert not [f for f in diagnose(recording).findings if f.severity == "error"]


def test_a_model_with_nothing_to_train_says_so():
    recording = edit(stack(4), "parameters", "requires_grad", lambda _: False)
    (finding,) = found(recording, "GS106")
    assert "nothing can be trained" in finding.message


def test_all_zero_gradients_in_float16_are_underflow_not_death():
    everything = {f"{name}.{kind}" for name, has in DEAD.items() if has for kind in ("weight", "bias")}
    recording = rename(chain(DEAD, set(DEAD), everything, dtype="float16"), dtype="float16")
    assert not found(recording, "GS105")


def test_what_is_written_through_a_chosen_mask_is_cut_off_from_the_chooser():
    """A hard router without weights: `y[mask] = expert(x[mask])` computes with the mask and returns nothing."""

    class Router(nn.Module):
        def __init__(self):
            super().__init__()
            self.choose = nn.Linear(8, 2)
            self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

        def forward(self, x):
            chosen, y = self.choose(x).argmax(-1), torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                mask = chosen == number
                y[mask] = expert(x[mask])
            return x + y

    inspection = gradscope.inspect(Router(), torch.randn(16, 8), lambda out, _: out.square().mean())
    (finding,) = (finding for finding in inspection.findings if finding.code == "GS106")
    assert (finding.module, finding.evidence["cut_operation"]) == ("choose", "argmax")
    assert inspection.verdict == "at-risk"


class First(nn.Module):
    """A layer whose units are all off."""

    def __init__(self, *, skip):
        super().__init__()
        self.fc, self.skip = nn.Linear(8, 8), skip
        nn.init.constant_(self.fc.bias, -100.0)

    def forward(self, x):
        return torch.relu(self.fc(x)) + (x if self.skip else 0.0)


@pytest.mark.parametrize(("skip", "verdict"), [(False, "will-not-train"), (True, "at-risk")])
def test_a_dead_layer_that_all_of_the_input_goes_through_is_the_end(skip, verdict):
    net = nn.Sequential(First(skip=skip), nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 3))
    inspection = inspected(net, torch.randn(32, 8))
    assert [f.severity for f in inspection.findings if f.code == "GS105"] == ["error"]
    assert [f.severity for f in inspection.findings if f.code == "GS111"] == ([] if skip else ["error"])
    assert inspection.verdict == verdict


def test_loud_logits_behind_a_dead_layer_are_not_told_as_well():
    net = nn.Sequential(First(skip=True), nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 3))
    with torch.no_grad():
        net[3].weight.mul_(1e5)
    recording = inspected(net, torch.randn(32, 8)).recording
    assert [f.severity for f in found(recording, "GS105")] == ["error"]
    assert not found(recording, "GS111")
    nn.init.zeros_(net[0].fc.bias)
    assert found(inspected(net, torch.randn(32, 8)).recording, "GS111"), "the units on, they are"
