"""Parameters listed by our own walk are those that the model lists itself."""

import warnings

import pytest
import torch
from torch import nn

from gradscope.probe.listing import Listing, buffers, named_modules, named_parameters


def _shared() -> nn.Module:
    layer = nn.Linear(2, 2)
    model = nn.Sequential(layer, nn.Sequential(nn.ReLU(), layer), nn.Linear(2, 2))
    model[2].weight = layer.weight
    model.register_parameter("scale", nn.Parameter(layer.bias.detach().clone()))
    model.register_module("nothing", None)
    return model


def _scripted(model: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*torch.jit.* is deprecated")
        return torch.jit.script(model)


class Renamed(nn.Linear):
    def named_parameters(self, *args, **kwargs):
        return ((f"flat.{name}", parameter) for name, parameter in super().named_parameters(*args, **kwargs))


@pytest.mark.parametrize("make", [
    _shared, lambda: nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(3, affine=False)),
    lambda: Renamed(2, 2), lambda: nn.TransformerEncoderLayer(8, 2), lambda: nn.LSTM(3, 4, num_layers=2),
    lambda: nn.ParameterDict({"a": nn.Parameter(nn.Linear(1, 1).weight), "b": None}),
    lambda: nn.utils.parametrizations.orthogonal(nn.Linear(3, 3)),
    lambda: _scripted(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))),
    lambda: nn.Sequential(nn.Linear(2, 2), _scripted(nn.Sequential(nn.Linear(2, 2), nn.ReLU())), nn.Linear(2, 2)),
])  # fmt: skip
def test_order_names_and_objects_agree_with_torch(make) -> None:
    model = make()
    expected = list(model.named_parameters())
    found = named_parameters(model)
    assert [name for name, _ in found] == [name for name, _ in expected]
    assert all(one is other for (_, one), (_, other) in zip(found, expected, strict=True))
    assert named_modules(model) == list(model.named_modules())
    assert all(one is other for one, other in zip(buffers(model), model.buffers(), strict=True))


def test_a_parameter_that_was_exchanged_since_is_the_new_one() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    listing = Listing(model)
    model[1].weight = shard = nn.Parameter(model[1].weight.detach()[:1])
    model[0].bias = None
    found = listing.read()
    assert [name for name, _ in found] == ["0.weight", "1.weight", "1.bias"]
    assert found[1][1] is shard
