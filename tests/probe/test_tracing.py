"""A model that is traced inside a watched loop is traced as it is: what we ask of its tensors is no part of it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gradscope.probe.watch import watch


def operations(model: nn.Module, x: Tensor) -> list[str]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*torch.jit.* is deprecated")  # a TracerWarning is still an error
        traced: Any = torch.jit.trace(model, x)
    return [node.kind() for node in traced.inlined_graph.nodes()]


@pytest.mark.parametrize("early", [True, False], ids=["between forward and backward", "after the step"])
def test_what_is_traced_is_the_model_alone(early: bool) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected = operations(model, x)
    with watch(model, every=1) as scope:
        for _ in range(3):
            loss = model(x).square().mean()
            if early:
                assert operations(model, x) == expected
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not early:
                assert operations(model, x) == expected
    assert scope.recording.watched_steps == [0, 1, 2]
    assert {row["module"] for row in scope.recording.rows("calls")} == {"", "0", "1", "2"}
