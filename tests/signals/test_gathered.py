"""Few numbers of many small tensors, worked out together."""

from __future__ import annotations

import torch
from torch import nn

from gradscope.probe.signals import gathered
from gradscope.probe.signals.gathered import Gathered
from gradscope.probe.signals.layout import RUN, spread, spread_alike
from gradscope.probe.signals.observer import Place, Readings


def _sums(tensors: torch.Tensor) -> torch.Tensor:
    return torch.stack([tensors.flatten(1).sum(1), tensors.flatten(1).amax(1)], dim=1)


def test_every_tensor_gets_its_own_numbers_whatever_the_shapes(monkeypatch) -> None:
    monkeypatch.setattr(gathered, "MOST_ELEMENTS", 20)  # works some before the end
    readings, waiting, found = Readings(), Gathered(_sums), {}
    tensors = [torch.full((2, 3), float(i)) if i % 2 else torch.full((4,), float(i)) for i in range(9)]
    for i, tensor in enumerate(tensors):
        waiting.add(Place("m", i), tensor)
    waiting.finish(readings, lambda key, numbers: found.update({key.call: numbers}))
    readings.read()
    assert found == {i: [float(tensor.sum()), float(i)] for i, tensor in enumerate(tensors)}
    waiting.finish(readings, lambda key, numbers: found.clear())
    readings.read()
    assert found, "nothing is handed out twice"


def test_a_large_tensor_is_represented_from_end_to_end_and_by_all_features() -> None:
    x = torch.arange(64 * 384, dtype=torch.float32).view(64, 384)
    some = spread(x, 1024)
    assert some.shape == (1024,)
    assert some.unique().numel() == 1024
    assert some[-1] > 0.98 * x.numel()
    assert (some.view(-1, RUN).diff(dim=1) == 1).all()
    assert (some % 384).unique().numel() > 0.9 * 384
    assert spread(x.t(), 1024).unique().numel() == 1024
    assert spread(x[:, ::2], 1024).numel() <= 1024
    assert spread(nn.Parameter(x[0]), 1024).tolist() == x[0].tolist()


def test_two_tensors_of_other_strides_are_looked_at_in_the_same_places() -> None:
    x = torch.randn(48, 64)
    for y in (x + 1, (x + 1).t().contiguous().t()):
        one, other = spread_alike(x, y, 1024)
        assert torch.equal(one + 1, other)
