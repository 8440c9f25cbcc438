"""Where gradients become exactly zero, or end in an operation that hands on places or draws: operation and line."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import gradscope
from gradscope.rules import diagnose


def line_of(words: str) -> int:
    with open(__file__) as file:
        return next(number for number, text in enumerate(file, 1) if words in text)


class Net(nn.Module):
    """An encoder, an operation, and a decoder."""

    def __init__(self, through: Callable[[Tensor, nn.Parameter], Tensor]) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16))
        self.factor = nn.Parameter(torch.zeros(()), requires_grad=False)
        self.decoder = nn.Linear(16, 4)
        self.through = through

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.through(self.encoder(x), self.factor))  # the operation's line


def train(net: nn.Module, num_steps: int = 3) -> list[Tensor]:
    torch.manual_seed(0)
    optimizer, losses = torch.optim.Adam(net.parameters()), []
    for _ in range(num_steps):
        optimizer.zero_grad()
        loss = net(torch.randn(6, 8)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().clone())
    return losses


ZERO = {
    "round": (lambda h, f: h.round(), "step"),
    "sign": (lambda h, f: h.sign(), "step"),
    "bernoulli": (lambda h, f: torch.bernoulli(h.sigmoid()), "draw"),
    "normal": (lambda h, f: torch.normal(h, h.abs() + 1), "draw"),
    "clamp": (lambda h, f: h.clamp(50, 60), "flat"),
    "relu": (lambda h, f: (h - 50).relu() + 1, "flat"),
    "mul by a constant": (lambda h, f: h * f + 1, "factor"),
}
CUT = {
    "sort": (lambda h, f: h.sort().indices.float(), "step"),
    "topk": (lambda h, f: h.topk(16).indices.float(), "step"),
    "normal": (lambda h, f: torch.distributions.Normal(h, 1.0).sample(), "draw"),
    "argmax": (lambda h, f: nn.functional.one_hot(h.argmax(-1), 16).float(), "step"),
}


@pytest.mark.parametrize("operation", ZERO)
@pytest.mark.parametrize("loop", ["ours", "the user's"])
def test_the_operation_that_passes_only_zeros_is_named_with_its_line(operation: str, loop: str) -> None:
    through, word = ZERO[operation]
    net = Net(through)
    if loop == "ours":
        recording = gradscope.inspect(net, torch.randn(6, 8), lambda out, _: out.square().mean()).recording
    else:
        plain = Net(through)
        plain.load_state_dict(net.state_dict())
        with gradscope.watch(net, every=1) as scope:
            losses = train(net)
        assert losses == train(plain)
        assert all(torch.equal(a, b) for a, b in zip(net.parameters(), plain.parameters(), strict=True))
        recording = scope.recording
    (finding,) = (finding for finding in diagnose(recording).findings if finding.code == "GS105")
    assert finding.module.startswith("encoder")
    assert finding.evidence["zero_from_operation"] == operation
    assert finding.line in (line_of("# the operation's line"), *_lambda_lines())
    assert finding.file is not None
    assert finding.file.endswith("test_zeros.py")
    assert word in finding.advice


@pytest.mark.parametrize("operation", CUT)
def test_places_and_draws_cut_the_graph(operation: str) -> None:
    through, word = CUT[operation]
    inspection = gradscope.inspect(Net(through), torch.randn(6, 8), lambda out, _: out.square().mean())
    (finding,) = (finding for finding in inspection.findings if finding.code == "GS106")
    assert inspection.verdict == "will-not-train"
    assert (finding.module, finding.evidence["cut_operation"]) == ("encoder", operation)
    assert word in finding.advice


def test_values_that_pass_beside_others_cut_nothing() -> None:
    """broadcast_tensors hands both on, one with a gradient and one without; a topk's values carry the gradient."""
    for through in (
        lambda h, f: torch.broadcast_tensors(h, f)[0] + torch.broadcast_tensors(h, f)[1],
        lambda h, f: h.topk(16).values.cumsum(-1),
    ):
        findings = gradscope.inspect(Net(through), torch.randn(6, 8), lambda out, _: out.square().mean()).findings
        assert not {"GS105", "GS106"} & {finding.code for finding in findings}


def test_what_wakes_up_is_not_looked_for() -> None:
    """A zero-initialised last layer silences what lies below at step 0 alone."""
    net = Net(lambda h, f: h)
    nn.init.zeros_(net.decoder.weight)
    recording = gradscope.inspect(net, torch.randn(6, 8), lambda out, _: (out - 1).square().mean()).recording
    assert list(recording.rows("events")) == []


def _lambda_lines() -> range:
    return range(line_of("ZERO = {"), line_of("CUT = {"))
