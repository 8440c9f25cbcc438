"""Models that are made to be loaded: frozen scales of zero, weights of next to nothing."""

import pytest
import torch
from torch import nn

import gradscope


class FrozenNorm(nn.Module):
    """A BatchNorm of which everything is a buffer, as detectors have it."""

    def __init__(self, scale):
        super().__init__()
        self.register_buffer("weight", torch.full((16,), scale))

    def forward(self, x):
        return x * self.weight


class Scale(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.gain = nn.Parameter(torch.full((16,), scale), requires_grad=False)

    def forward(self, x):
        return x * self.gain


class Block(nn.Module):
    def __init__(self, last, skip):
        super().__init__()
        self.a, self.b, self.last, self.skip = nn.Linear(16, 64), nn.Linear(64, 16), last, skip

    def forward(self, x):
        branch = self.last(self.b(torch.relu(self.a(x))))
        return x + branch if self.skip else branch


def judged(*blocks):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), *blocks, nn.Linear(16, 3))
    inputs, targets = torch.randn(32, 8), torch.randint(3, (32,))
    return gradscope.inspect(net, inputs, lambda out, _: nn.functional.cross_entropy(out, targets))


def of(inspection, code):
    return [f for f in inspection.findings if f.code == code]


@pytest.mark.parametrize("last", [FrozenNorm, Scale])
def test_a_frozen_scale_of_zero_in_a_branch_is_a_risk_with_its_reason(last):
    found = judged(Block(last(0.0), True), Block(last(0.0), True))
    (finding,) = of(found, "GS105")
    assert (finding.severity, finding.module, finding.evidence["frozen_scales"]) == ("warning", "1.b", 2)
    assert "scale of the frozen `1.last`, `2.last` behind them is zero" in finding.message
    assert "pretrained" in finding.advice
    assert found.verdict == "at-risk"
    assert "frozen at zero" in str(found)
    assert not of(judged(Block(last(1.0), True)), "GS105")


def test_a_frozen_scale_of_zero_with_no_way_past_it_is_the_end():
    found = judged(Block(FrozenNorm(0.0), False))
    (finding,) = of(found, "GS105")
    assert (finding.severity, finding.module) == ("error", "1.b")
    assert found.verdict == "will-not-train"


def faint_net(std, layers=4, normed=False):
    torch.manual_seed(0)
    net = nn.Sequential(
        *(m for _ in range(layers) for m in (nn.Linear(16, 16), nn.LayerNorm(16) if normed else nn.Identity())),
        nn.Linear(16, 3),
    )
    for module in net.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=std)
            nn.init.zeros_(module.bias)
    targets = torch.randint(3, (32,))
    return gradscope.inspect(net, torch.randn(32, 16), lambda out, _: nn.functional.cross_entropy(out, targets))


def test_weights_of_next_to_nothing_are_named_as_the_cause():
    found = faint_net(1e-10)
    (finding,) = of(found, "GS110")
    assert (finding.severity, finding.module) == ("error", "0")
    assert found.verdict == "will-not-train"
    assert "all but zero" in str(found)
    assert not of(found, "GS105")


def test_weights_that_the_first_steps_lift_only_warn():
    found = faint_net(1e-8, layers=1)
    (finding,) = of(found, "GS110")
    assert finding.severity == "warning"


@pytest.mark.parametrize("std", [1e-4, 0.02])
def test_small_weights_are_not_faint(std):
    assert not of(faint_net(std, normed=True), "GS110")


@pytest.mark.parametrize("left", [3e-41, 1e35])
def test_weights_that_hold_what_the_memory_held_are_told(left):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 16, bias=False), nn.Linear(16, 3))
    net[1].weight.data.zero_().view(-1)[:2].fill_(left)
    targets = torch.randint(3, (32,))
    found = gradscope.inspect(net, torch.randn(32, 8), lambda out, _: nn.functional.cross_entropy(out, targets))
    (finding,) = of(found, "GS110")
    assert finding.module == "1"
    assert "never written" in finding.message
    assert "torch.empty" in finding.advice
    assert found.verdict == "will-train" or "whatever the memory held" in found.diagnosis.reason


class Unused(nn.Module):
    """A text model with a picture tower that is not given pictures."""

    def __init__(self):
        super().__init__()
        self.tower, self.body = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)), nn.Linear(8, 3)
        for layer in self.tower:
            nn.init.normal_(layer.weight, std=1e-10)

    def forward(self, x, picture=None):
        return self.body(x) if picture is None else self.body(x) + self.tower(picture)[:, :3]


def test_faint_weights_that_took_no_part_are_a_remark():
    torch.manual_seed(0)
    targets = torch.randint(3, (32,))
    found = gradscope.inspect(
        Unused(), {"x": torch.randn(32, 8)}, lambda out, _: nn.functional.cross_entropy(out, targets)
    )
    (finding,) = of(found, "GS110")
    assert (finding.severity, finding.module) == ("info", "tower.0")
    assert "took part" in finding.message
    assert found.verdict == "will-train"
