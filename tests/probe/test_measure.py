"""`measure`: the steps of a plain loop, their numbers, the model as it was, and clear words when something is wrong."""

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from gradscope.errors import ConfigError, InputsError, LossError, ModelError
from gradscope.probe import MeasurementInterrupted, measure
from gradscope.probe.settings import ProbeSettings
from gradscope.record import Recording
from gradscope.target.subject import Origin, Subject

CPU = ProbeSettings(device="cpu", jacobian=False)
HERE = Path(__file__).parent


def net(seed=0, dropout=0.2):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 3))


def data(seed=1):
    return (torch.randn(5, 6, generator=torch.Generator().manual_seed(seed)),)


def square(output, batch):
    return output.square().mean()


def subject(model=None, batches=None, loss=square, **more):
    model = net() if model is None else model
    batches = [data()] if batches is None else batches
    return Subject(model, batches, loss, "model.py", Origin("batch()"), Origin("loss()"), root=HERE, **more)


def settings(**changes):
    return ProbeSettings(**{**vars(CPU), **changes})


def plain_losses(num_steps, make=torch.optim.Adam, **options):
    model = net()
    torch.manual_seed(0)
    optimizer = make(model.parameters(), lr=1e-3, **options)
    losses, norms = [], []
    for _ in range(num_steps):
        loss = square(model(*data()), None)
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms, model


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD"])
def test_losses_are_those_of_a_plain_loop_to_the_last_digit(name):
    losses, norms, _ = plain_losses(11, getattr(torch.optim, name))
    recording = measure(subject(), settings(optimizer=name.lower()))
    assert recording.watched_steps == [0, 3, 10]
    assert recording.tables["steps"]["loss"] == [losses[0], losses[3], losses[10]]
    assert recording.tables["steps"]["grad_norm"] == pytest.approx([norms[0], norms[3], norms[10]], rel=1e-5)


def test_weight_and_update_norms_are_those_of_the_step_that_was_taken():
    model, twin = net(), net()
    recording = measure(subject(model), settings(num_steps=1, watched_steps=(0,), optimizer="sgd", lr=0.5))
    torch.manual_seed(0)
    square(twin(*data()), None).backward()
    names = recording.tables["parameters"]["name"]
    for row in recording.rows("parameter_stats"):
        parameter = dict(twin.named_parameters())[names[row["parameter"]]]
        assert row["weight_norm"] == pytest.approx(parameter.norm().item(), rel=1e-6)
        assert row["update_norm"] == pytest.approx(0.5 * parameter.grad.norm().item(), rel=1e-3, abs=1e-8)


def test_everything_is_put_back():
    model = net()
    model[0].weight.grad = torch.full_like(model[0].weight, 3.0)
    model[4].bias.requires_grad_(False)
    model[2].eval()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    places = {k: v.data_ptr() for k, v in model.state_dict().items()}
    grad, random_state = model[0].weight.grad, torch.get_rng_state()
    measure(subject(model), settings(mode="train", dtype="float64"))
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert {k: v.data_ptr() for k, v in model.state_dict().items()} == places
    assert model[0].weight.grad is grad
    assert torch.equal(grad, torch.full_like(grad, 3.0))
    assert model[1].weight.grad is None
    assert [m.training for m in model] == [True, True, False, True, True]
    assert not model[4].bias.requires_grad
    assert torch.equal(torch.get_rng_state(), random_state)


def test_kept_steps_are_those_of_the_plain_loop():
    _, _, trained = plain_losses(3)
    model = net()
    measure(subject(model), settings(num_steps=3, watched_steps=(0, 2), keep_steps=True))
    for a, b in zip(model.state_dict().values(), trained.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    assert all(p.grad is None for p in model.parameters())


def test_lazy_modules_take_their_shapes_in_the_watched_step_and_are_lazy_again():
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2))
    recording = measure(subject(model), settings(num_steps=2, watched_steps=(0, 1)))
    assert recording.tables["parameters"]["shape"] == [[4, 6], [4], [2, 4], [2]]
    assert isinstance(model[0], nn.LazyLinear)
    assert isinstance(model[0].weight, nn.UninitializedParameter)
    again = measure(subject(model), settings(num_steps=2, watched_steps=(0, 1)))
    assert again.tables["steps"]["loss"] == recording.tables["steps"]["loss"]


def test_data_dependent_initialisation_happens_in_the_watched_step():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.ready, self.scale, self.lin = False, nn.Parameter(torch.ones(())), nn.Linear(6, 2)

        def forward(self, x):
            y = self.lin(x)
            if not self.ready:
                self.ready = True
                with torch.no_grad():
                    self.scale /= y.std()
            return self.scale * y

    torch.manual_seed(0)
    model = Scaled()
    recording = measure(subject(model), settings(num_steps=1, watched_steps=(0,), optimizer="none"))
    assert model.ready is False
    assert model.scale.item() == 1.0
    torch.manual_seed(0)
    twin = Scaled()
    assert recording.tables["steps"]["loss"] == [square(twin(*data()), None).item()]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_dtype_converts_parameters_and_floating_inputs(dtype):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.lin = nn.Embedding(5, 6), nn.Linear(6, 2)

        def forward(self, ids, x):
            assert ids.dtype is torch.int64
            assert str(x.dtype) == f"torch.{dtype}"
            return self.lin(self.emb(ids) + x)

    batch = {"ids": torch.arange(5), "x": data()[0]}
    recording = measure(subject(Net(), [batch]), settings(dtype=dtype, num_steps=1, watched_steps=(0,)))
    assert recording.provenance.dtype == "float32"
    assert set(recording.tables["parameters"]["dtype"]) == {dtype}


def test_batches_are_used_again_when_they_run_out():
    def losses_of(batches):
        model = net(dropout=0.0).eval()
        every = settings(optimizer="none", num_steps=5, watched_steps=(0, 1, 2, 3, 4))
        return measure(subject(model, batches), every).tables["steps"]["loss"]

    losses = losses_of([data(1), data(2)])
    assert losses[0] == losses[2] == losses[4] != losses[1] == losses[3]
    assert losses_of(iter([data(1), data(2)])) == losses


def test_error_in_the_users_forward_names_file_and_line():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(7, 2)

        def forward(self, x):
            return self.lin(x)

    with pytest.raises(ModelError, match="mat1 and mat2") as caught:
        measure(subject(Broken()), CPU)
    assert caught.value.file == "test_measure.py"
    assert "return self.lin(x)" in caught.value.rule
    assert caught.value.recording is None


def test_error_at_a_later_step_keeps_what_was_measured():
    calls = []

    def loss(output, batch):
        calls.append(1)
        if len(calls) == 3:
            raise ZeroDivisionError("three")
        return output.square().mean()

    model = net()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(ModelError, match="step 2") as caught:
        measure(subject(model, loss=loss), CPU)
    assert caught.value.recording.watched_steps == [0]
    assert caught.value.recording.provenance.partial
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert nn.Module.__call__.__name__ == "_wrapped_call_impl"


def test_interrupt_keeps_what_was_measured(tmp_path):
    def progress(words, done, total):
        if done == 4:
            raise KeyboardInterrupt

    model = net()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(MeasurementInterrupted) as caught:
        measure(subject(model), CPU, progress)
    recording = caught.value.recording
    assert recording.provenance.partial
    assert recording.watched_steps == [0, 3]
    recording.save(tmp_path / "run.json")
    assert Recording.load(tmp_path / "run.json").provenance.partial
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())


def test_interrupt_before_the_first_step():
    def progress(words, done, total):
        raise KeyboardInterrupt

    with pytest.raises(MeasurementInterrupted) as caught:
        measure(subject(), CPU, progress)
    assert caught.value.recording.watched_steps == []
    assert caught.value.recording.num_rows("modules") == 6


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda output, batch: output, "shape 5x3"),
        (lambda output, batch: 3.0, "float"),
        (lambda output, batch: output.mean().detach(), "does not depend on any parameter"),
    ],
)
def test_loss_that_is_no_scalar_with_a_gradient(loss, words):
    with pytest.raises(LossError, match=words):
        measure(subject(loss=loss), CPU)


def test_loss_cut_off_from_the_model_names_the_line():
    with pytest.raises(LossError) as caught:
        measure(subject(loss=lambda output, batch: output.detach().mean()), CPU)  # here
    assert caught.value.file == "test_measure.py"
    assert "cut by detach" in caught.value.rule
    assert "# here" in caught.value.rule


def test_frozen_model_and_empty_batches():
    with pytest.raises(LossError, match="No parameter"):
        measure(subject(net().requires_grad_(False)), CPU)
    with pytest.raises(InputsError):
        measure(subject(batches=[]), CPU)


@pytest.mark.parametrize("change", [{"optimizer": "adamm"}, {"device": "gpu"}, {"dtype": "fp16"}])
def test_settings_that_do_not_exist(change):
    with pytest.raises(ConfigError, match=next(iter(change.values()))):
        measure(subject(), settings(**change))


def test_out_of_memory_is_told_as_such():
    class Greedy(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(6, 2)

        def forward(self, x):
            raise MemoryError

    with pytest.raises(ModelError, match="out of memory") as caught:
        measure(subject(Greedy()), CPU)
    assert "smaller batch" in caught.value.hint


def test_not_finite_step_ends_the_run_and_names_the_birthplace():
    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(6, 3)

        def forward(self, x):
            y = self.lin(x)
            return (y - y.detach()).square().sum(1).sqrt()

    recording = measure(subject(Root()), CPU)
    assert recording.watched_steps == [0]
    event = next(iter(recording.rows("events")))
    assert (event["step"], event["kind"], event["op"]) == (0, "nonfinite_backward", "Sqrt")
    assert event["file"] == "test_measure.py"
    assert math.isfinite(recording.tables["steps"]["loss"][0])
    assert any("steps 3, 10" in what for what in recording.tables["confessions"]["what"])


@pytest.mark.parametrize("level", ["params", "default", "deep"])
def test_a_layer_without_room_is_stepped_like_any_other(level):
    model = net()
    model.append(nn.Linear(3, 3))
    with torch.no_grad():
        model[-1].spare = nn.Parameter(torch.empty(0, 3))

    def loss(output, batch):
        return output.square().mean() + model[-1].spare.sum()

    recording = measure(subject(model, loss=loss), settings(level=level, jacobian=True))
    assert recording.watched_steps == [0, 3, 10]


def test_explosion_between_watched_steps_is_found_where_it_happens():
    def loss(output, batch):
        return (output.square().mean() * 1e4).exp()

    recording = measure(subject(net(dropout=0.0), loss=loss), settings(optimizer="sgd", lr=10.0))
    events = list(recording.rows("events"))
    assert events
    assert events[0]["kind"] == "nonfinite_forward"
    assert events[0]["op"] == "exp"


def test_cut_graph_is_an_event_with_its_line():
    class Cut(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.head = nn.Linear(6, 6), nn.Linear(6, 2)

        def forward(self, x):
            z = self.encoder(x)
            self.last = z
            return self.head(z.detach())

    model = Cut()
    recording = measure(subject(model), CPU)
    (event,) = recording.rows("events")
    assert (event["kind"], event["op"], event["file"]) == ("cut", "detach", "test_measure.py")
    assert "encoder.weight" in event["detail"]
    takes_part = {row["name"]: row["takes_part"] for row in recording.rows("parameters")}
    assert takes_part == {"encoder.weight": False, "encoder.bias": False, "head.weight": True, "head.bias": True}
    assert not hasattr(model, "last")


def test_levels():
    bare = measure(subject(), settings(level="params"))
    assert bare.num_rows("calls") == 0
    assert bare.num_rows("parameter_stats") == 3 * 6
    assert measure(subject(), settings(level="deep", num_steps=1, watched_steps=(0,))).num_rows("observations") > 0
