"""Units that are all alike, against networks whose rows are equal for a reason."""

import pytest
import torch
from torch import nn

import gradscope
from gradscope.probe.signals.symmetry import row_spread


def constant(net, value, kinds=(nn.Linear, nn.Conv2d, nn.RNNBase)):
    for module in net.modules():
        if isinstance(module, kinds):
            for parameter in module.parameters():
                nn.init.constant_(parameter, value)
    return net


def mlp():
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 5))


def cnn():
    return nn.Sequential(
        nn.Conv2d(2, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    )


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(8, 16, batch_first=True), nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


class LowRank(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.down, self.up = mlp(), nn.Linear(8, 4), nn.Linear(4, 5)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.body(x) + self.up(self.down(x))


def alike(net, *shape):
    torch.manual_seed(0)
    targets = torch.randint(5, (32,))
    found = gradscope.inspect(net, torch.randn(32, *shape), lambda out, _: nn.functional.cross_entropy(out, targets))
    return found, [f for f in found.findings if f.code == "GS308"]


@pytest.mark.parametrize(("net", "shape", "first"), [
    (mlp, (8,), "0"), (cnn, (2, 8, 8), "0"), (Recurrent, (6, 8), "rnn"),
])  # fmt: skip
def test_constant_weights_make_units_alike(net, shape, first):
    torch.manual_seed(0)
    found, (finding,) = alike(constant(net(), 0.05), *shape)
    assert (finding.severity, finding.module) == ("error", first)
    assert "single unit" in finding.message
    assert found.verdict in ("at-risk", "will-not-train")


def test_dropout_tells_units_apart():
    net = constant(nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.5), nn.Tanh(), nn.Linear(32, 5)), 0.05)
    assert not alike(net, 8)[1]


def depthwise():
    net = nn.Sequential(nn.Conv2d(2, 8, 1), nn.Conv2d(8, 8, 3, groups=8), nn.Flatten(), nn.Linear(288, 5))
    nn.init.constant_(net[1].weight, 1 / 9)
    return net


def zero_head():
    net = mlp()
    nn.init.zeros_(net[4].weight)
    return net


@pytest.mark.parametrize(("net", "shape"), [(mlp, (8,)), (LowRank, (8,)), (zero_head, (8,)), (depthwise, (2, 8, 8))])
def test_equal_rows_that_part_are_no_fault(net, shape):
    torch.manual_seed(0)
    assert not alike(net(), *shape)[1]


def test_spread_of_equal_and_of_independent_rows():
    torch.manual_seed(0)
    assert row_spread(torch.ones(32, 7)) == 0
    assert row_spread(torch.randn(512, 512)) == pytest.approx(2**0.5, rel=0.1)
    assert row_spread(torch.zeros(32, 7)).isnan()
