from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.signals.watching import watch


@pytest.mark.parametrize(
    ("norm", "shape", "expected"),
    [
        (nn.BatchNorm1d(6), (2, 6), 2),
        (nn.BatchNorm2d(6), (2, 6, 3, 1), 6),
        (nn.InstanceNorm2d(6), (2, 6, 3, 1), 3),
        (nn.GroupNorm(3, 6), (2, 6, 3, 1), 6),
        (nn.GroupNorm(6, 6), (2, 6), 1),
        (nn.LayerNorm(6), (2, 5, 6), 6),
        (nn.RMSNorm(1), (2, 5, 1), 1),
    ],
)
def test_values_per_statistic(norm: nn.Module, shape: tuple[int, ...], expected: int) -> None:
    model = nn.Sequential(norm)
    x = torch.randn(shape, requires_grad=True)
    assert watch(model, lambda: model(x).sum())("batch_samples", "0") == expected


def test_stored_statistics_are_not_taken() -> None:
    model = nn.Sequential(nn.BatchNorm1d(6)).eval()
    assert not watch(model, lambda: model(torch.randn(2, 6)).sum()).has("batch_samples", "0")
