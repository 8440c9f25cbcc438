from __future__ import annotations

import pytest
import torch
from torch import nn

from gradscope.probe.signals.observer import StepContext
from tests.signals.watching import watch


def cosines(rows: torch.Tensor) -> float:
    """The plain way: the whole matrix of cosines, off the diagonal."""
    unit = rows.double() / rows.double().norm(dim=-1, keepdim=True)
    gram = unit @ unit.transpose(-1, -2)
    n = rows.shape[-2]
    return float(((gram.sum((-1, -2)) - n) / (n * (n - 1))).mean())


class Fixed(nn.Module):
    """A model whose only station holds given values."""

    def __init__(self, values: torch.Tensor) -> None:
        super().__init__()
        self.inner = nn.Identity()
        self.values = nn.Parameter(values)
        self.head = nn.Linear(values.shape[-1], 1)

    def forward(self) -> torch.Tensor:
        return self.head(self.inner(self.values)).sum()


@pytest.mark.parametrize("shape", [(6, 32), (4, 8, 32), (2, 5, 7, 32)])
def test_cosines_equal_the_whole_matrix(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    values = torch.randn(shape) + 0.5
    model = Fixed(values)
    seen = watch(model, model)
    assert seen("sample_cosine", "inner") == pytest.approx(cosines(values.flatten(1)), abs=1e-6)
    if len(shape) > 2:
        assert seen("token_cosine", "inner") == pytest.approx(cosines(values.flatten(1, -2)), abs=1e-6)
    else:
        assert not seen.has("token_cosine", "inner")


@pytest.mark.parametrize("scale", [1e-38, 1e30])
def test_extreme_magnitudes(scale: float) -> None:
    torch.manual_seed(0)
    values = torch.randn(4, 8, 32) * scale
    model = Fixed(values)
    assert watch(model, model)("token_cosine", "inner") == pytest.approx(cosines(values), abs=1e-5)


def test_collapsed_tokens_have_cosine_one_and_channels_are_no_tokens() -> None:
    model = Fixed(torch.randn(4, 1, 32).expand(4, 8, 32).contiguous())
    assert watch(model, model)("token_cosine", "inner") == pytest.approx(1, abs=1e-6)
    conv = nn.Sequential(nn.Conv1d(3, 16, 1), nn.ReLU())
    assert not watch(conv, lambda: conv(torch.randn(4, 3, 9)).sum()).has("token_cosine", "0")


def test_points_and_boxes_are_no_tokens() -> None:
    model = Fixed(torch.rand(4, 8, 4))
    assert not watch(model, model).has("token_cosine", "inner")


def test_sequence_first_models_keep_tokens_on_axis_zero() -> None:
    torch.manual_seed(0)
    x = torch.randn(9, 4, 16)
    model = nn.Sequential(nn.Linear(16, 16), nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0))
    seen = watch(model, lambda: model(x).sum())
    assert seen("token_cosine", "0") == pytest.approx(cosines(model[0](x).detach().transpose(0, 1)), abs=1e-5)


def test_only_stations_are_kept() -> None:
    model = Fixed(torch.randn(4, 32))
    seen = watch(model, model, context=StepContext(stations=frozenset({("head", 0)})))
    assert seen.has("sample_cosine", "head")
    assert not seen.has("sample_cosine", "inner")
