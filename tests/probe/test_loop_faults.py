"""Where a loop that is not ours loses its numbers or its gradients: operation, module, line; and nothing changes."""

import pytest
import torch
from torch import nn

import gradscope
from gradscope.probe.watch import watch
from gradscope.rules import diagnose
from tests.probe.test_watch import nothing_attached


def line_of(words):
    with open(__file__) as file:
        return next(number for number, text in enumerate(file, 1) if words in text)


def run(model, loss_of, batches, lr=1e-3, scope=None):
    """Train and return what a user would see: losses, weights, random numbers, buffers."""
    torch.manual_seed(0)
    optimizer, seen = torch.optim.SGD(model.parameters(), lr=lr), []
    for x in batches:
        optimizer.zero_grad()
        loss = loss_of(model, x)
        loss.backward()
        optimizer.step()
        seen += [loss.detach().clone(), torch.rand(3)]
    return seen + [value.clone() for value in model.state_dict().values()]


def watched(build, loss_of, batches, modes=0):
    plain = run(build(), loss_of, batches)
    model = build()
    with watch(model, every=1) as scope:
        ours = run(model, loss_of, batches)
    assert all(torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) for a, b in zip(plain, ours, strict=True))
    assert nothing_attached()
    assert torch._C._len_torch_function_stack() == modes
    return scope.recording


def events(recording, kind):
    return [event for event in recording.rows("events") if event["kind"] == kind]


class Standardise(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.seen = []

    def forward(self, x):
        self.calls += 1
        self.seen.append(self.calls)
        return x / x.std(-1, keepdim=True)  # the division


class Net(nn.Module):
    def __init__(self, middle):
        super().__init__()
        torch.manual_seed(1)
        self.start, self.middle, self.end = nn.Linear(4, 6), middle, nn.Linear(6, 2)
        self.norm, self.drop = nn.BatchNorm1d(6), nn.Dropout(0.3)

    def forward(self, x):
        return self.end(self.drop(self.norm(self.middle(self.start(x)))))


def batches(count, bad=None):
    generator = torch.Generator().manual_seed(3)
    drawn = [torch.randn(5, 4, generator=generator) for _ in range(count)]
    if bad is not None:
        drawn[bad] = torch.zeros(5, 4)
    return drawn


def squared(model, x):
    return model(x).square().mean()


def test_nan_of_a_forward_is_found_at_its_step_and_line():
    def build():
        net = Net(Standardise())
        nn.init.zeros_(net.start.bias)
        net.start.bias.requires_grad_(False)
        return net

    recording = watched(build, squared, batches(5, bad=3))
    (first, *_) = events(recording, "nonfinite_forward")
    assert (first["step"], first["module"], first["op"]) == (3, "middle", "div")
    assert first["line"] == line_of("# the division")
    assert first["file"].endswith("test_loop_faults.py")
    assert {event["step"] for event in recording.rows("events")} == {3}


def test_what_the_forward_keeps_on_modules_is_as_without_us():
    net = Net(Standardise())
    nn.init.zeros_(net.start.bias)
    net.start.bias.requires_grad_(False)
    seen = net.middle.seen
    with watch(net, every=1):
        run(net, squared, batches(3, bad=1))
    assert net.middle.calls == 3
    assert net.middle.seen is seen
    assert seen == [1, 2, 3]


class Distance(nn.Module):
    def forward(self, x):
        return (x * x).sum(-1, keepdim=True).sqrt().expand_as(x)  # the root


def test_nan_of_a_backward_is_found_in_the_model():
    def build():
        net = Net(Distance())
        nn.init.zeros_(net.start.bias)
        net.start.bias.requires_grad_(False)
        return net

    recording = watched(build, squared, batches(5, bad=2))
    assert not events(recording, "nonfinite_forward")
    (first, *_) = events(recording, "nonfinite_backward")
    assert (first["step"], first["module"], first["op"]) == (2, "middle", "Sqrt")
    assert first["line"] == line_of("# the root")


def logarithm(model, x):
    chances = model(x).softmax(-1) * x.any()
    return -chances.log().mean()  # the logarithm


def test_infinity_of_the_loss_is_found_outside_of_the_model():
    recording = watched(lambda: Net(nn.Tanh()), logarithm, batches(4, bad=2))
    (only,) = recording.rows("events")
    assert (only["step"], only["kind"], only["op"]) == (2, "nonfinite_forward", "log")
    assert (only["module"], only["call"], only["line"]) == ("", -1, line_of("# the logarithm"))


def guarded(model, x):
    gap = model(x) * x.any()
    safe = torch.where(gap == 0, 0.0, gap.square().sqrt())  # guarded too late
    return safe.mean()


def test_nan_of_the_gradient_of_the_loss_is_found_outside_of_the_model():
    recording = watched(lambda: Net(nn.Tanh()), guarded, batches(4, bad=2))
    (only,) = recording.rows("events")
    assert (only["step"], only["kind"], only["op"]) == (2, "nonfinite_backward", "sqrt")
    assert only["line"] == line_of("# guarded too late")


def masked(model, x):
    scores = model(x).masked_fill(x[:, :2] > 9, float("-inf"))
    return -scores.log_softmax(-1)[:, 0].mean()


def test_infinities_of_a_mask_are_no_fault():
    recording = watched(lambda: Net(nn.Tanh()), masked, batches(3))
    assert list(recording.rows("events")) == []
    assert "where numbers become non-finite" not in recording.tables["confessions"]["what"]


class Quantised(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.book = nn.Linear(6, 6), nn.Embedding(8, 6)

    def forward(self, x):
        code = torch.cdist(self.enter(x), self.book.weight).argmin(-1)  # the cut
        return self.book(code)


def test_cut_in_the_model_is_found_on_the_first_step():
    recording = watched(lambda: Net(Quantised()), squared, batches(3))
    (cut,) = events(recording, "cut")
    assert (cut["step"], cut["module"], cut["op"], cut["line"]) == (0, "middle", "argmin", line_of("# the cut"))
    assert "start.weight" in cut["detail"]
    assert "middle.enter.weight" in cut["detail"]
    assert "book" not in cut["detail"]


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.start, self.one, self.other = nn.Linear(4, 6), nn.Linear(6, 2), nn.Linear(6, 2)

    def forward(self, x):
        h = self.start(x)
        return self.one(h), self.other(h)


def detached(model, x):
    one, other = model(x)
    assert one.mean().item() == one.mean().item()
    return one.square().mean() + other.detach().square().mean()  # the detached head


def test_cut_in_the_loss_is_found():
    recording = watched(TwoHeads, detached, batches(3))
    (cut,) = events(recording, "cut")
    assert (cut["op"], cut["line"]) == ("detach", line_of("# the detached head"))
    assert "2 parameters: other.weight, other.bias" in cut["detail"]


class Partly(TwoHeads):
    def forward(self, x):
        with torch.no_grad():  # switched off
            h = self.start(x)
        return self.one(h)


def test_cut_by_no_grad_around_a_part_is_found():
    recording = watched(Partly, squared, batches(3))
    (cut,) = events(recording, "cut")
    assert (cut["op"], cut["line"]) == ("no_grad", line_of("# switched off"))
    assert "2 parameters: start.weight, start.bias" in cut["detail"]


def doubled(model, x):
    return nn.functional.cross_entropy(model(x).softmax(-1), torch.zeros(len(x), dtype=torch.long))


def test_functions_of_the_loss_are_seen_by_signals():
    recording = watched(lambda: Net(nn.Tanh()), doubled, batches(2))
    seen = {row["metric"]: row["value"] for row in recording.rows("observations") if row["step"] == 0}
    assert seen["probabilities_as_logits"] == 1.0
    assert seen["loss_classes"] == 2.0


def test_modes_of_the_user_around_the_forward_alone():
    def under_a_device(model, x):
        with torch.device("cpu"):
            out = model(x)
        return (out * torch.ones(2)).square().mean()

    torch.set_default_device("cpu")
    try:
        recording = watched(lambda: Net(nn.Tanh()), under_a_device, batches(3), modes=1)
    finally:
        torch.set_default_device(None)
    assert recording.watched_steps == [0, 1, 2]
    assert torch._C._len_torch_function_stack() == 0


@pytest.mark.parametrize(
    ("loss_of", "operation"),
    [
        (lambda net, x: torch.tensor(net(x).square().mean().item(), requires_grad=True), "item"),
        (lambda net, x: net(x).argmax(-1).float().mean().requires_grad_(), "argmax"),
        (lambda net, x: net(x).detach().square().mean().requires_grad_(), "detach"),
    ],
)
def test_a_loss_that_is_cut_off_from_the_whole_model(loss_of, operation):
    """The loop runs and its optimizer steps, and nothing ever arrives: no other model's backward."""
    recording = watched(lambda: Net(nn.Identity()), loss_of, torch.randn(3, 8, 4))
    diagnosis = diagnose(recording)
    (finding,) = (finding for finding in diagnosis.findings if finding.code == "GS106")
    assert (diagnosis.verdict, finding.module) == ("will-not-train", "")
    assert finding.evidence["cut_operation"] == operation
    assert finding.file is not None
    assert finding.file.endswith("test_loop_faults.py")


def test_each_parameter_is_given_to_the_nearest_place_where_its_gradient_becomes_zero():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x):
            x = x + self.a(x).round()
            return self.c(x + self.b(x).sign())

    recording = gradscope.inspect(Twice(), torch.randn(6, 4), lambda out, _: out.square().mean()).recording
    found = {event["op"]: event["detail"].rpartition(": ")[2] for event in events(recording, "zero")}
    assert found == {"round": "a.weight, a.bias", "sign": "b.weight, b.bias"}


class Learner(nn.Module):
    """A network that learns from a second one, which no optimizer holds and which runs without gradients."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.online, self.target = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        with torch.no_grad():
            wanted = self.target(x)
        return self.online(x) - wanted


@pytest.mark.parametrize(("held", "codes"), [("online", set()), ("", {"GS106"})])
def test_a_part_that_no_optimizer_holds_is_not_meant_to_learn(held, codes):
    model = Learner()
    optimizer = torch.optim.SGD(model.get_submodule(held).parameters(), lr=0.01)
    with watch(model, every=1) as scope:
        for x in batches(4):
            optimizer.zero_grad()
            squared(model, x).backward()
            optimizer.step()
    found = {finding.code for finding in diagnose(scope.recording).findings}
    assert found & {"GS106"} == codes


def test_a_buffer_that_turns_to_nan_is_dated_by_the_step_before_which_it_did():
    class Spoilt(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.layer = nn.Linear(4, 4)
            self.register_buffer("scale", torch.ones(4))

        def forward(self, x):
            return self.layer(x) * self.scale

    model = Spoilt()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watch(model, every=1) as scope:
        for step, x in enumerate(batches(4)):
            if step == 2:  # between two steps, as a broken update of statistics would
                model.scale[1] = float("nan")
            optimizer.zero_grad()
            squared(model, x).backward()
            optimizer.step()
    (told,) = [finding for finding in diagnose(scope.recording).findings if finding.code == "GS104"]
    assert "before step 2" in told.message
