"""Tokens that start at next to nothing in front of a norm: their gradient is huge, and neither hurts nor hides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradscope.probe import measure
from gradscope.probe.settings import ProbeSettings
from gradscope.probe.structure.faint_rows import row_weights
from gradscope.record import Recording
from gradscope.rules import diagnose
from gradscope.target.subject import Origin, Subject

WIDTH, TOKENS = 32, 8


class Block(nn.Module):
    """Pre-norm attention (with a norm on its values, as where queries and keys have one) and MLP."""

    def __init__(self, value_gain: float = 1.0) -> None:
        super().__init__()
        self.norm, self.norm2, self.value_norm = (nn.RMSNorm(WIDTH, eps=1e-6) for _ in range(3))
        self.qk, self.value = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.value_gain = value_gain

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        query, key = self.qk(h).chunk(2, -1)
        x = x + F.scaled_dot_product_attention(query, key, self.value_norm(self.value(h))) * self.value_gain
        return x + self.mlp(self.norm2(x))


class Padded(nn.Module):
    """A text model whose batch is padded: rows of exact zeros enter the first norm."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, WIDTH, padding_idx=0)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(WIDTH, 20)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Pictures(nn.Module):
    """A Vision Transformer whose class token and positions start at zero; no module returns where its stream starts."""

    def __init__(self, class_token: float = 0.0) -> None:
        super().__init__()
        self.patches = nn.Linear(12, WIDTH)
        self.token = nn.Parameter(torch.full((1, 1, WIDTH), class_token))
        self.positions = nn.Parameter(torch.zeros(1, TOKENS + 1, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(6))
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.token.expand(len(x), -1, -1), self.patches(x)], 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])


def _measured(model: nn.Module, x: Tensor, labels: Tensor, **settings: Any) -> Recording:
    def loss(output: Tensor, _: Any) -> Tensor:
        return F.cross_entropy(output.flatten(0, -2), labels.flatten())

    subject = Subject(model, [(x,)], loss, "model.py", Origin("batch()"), Origin("loss()"), root=Path(__file__).parent)
    return measure(subject, ProbeSettings(**settings))


def _padded() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    ids = torch.randint(1, 20, (8, TOKENS))
    ids[:, 5:] = 0
    return Padded(), ids, ids.roll(1, 1)


def _pictures(class_token: float = 0.0) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    return Pictures(class_token), torch.randn(16, TOKENS, 12), torch.randint(4, (16, 1))


@pytest.mark.parametrize("make", [_padded, _pictures])
def test_healthy_all_the_same(make: Any) -> None:
    found = diagnose(_measured(*make()))
    assert found.verdict == "will-train", found.reason
    assert not {"GS102", "GS103"} & {f.code for f in found.findings}


def test_share_is_that_of_the_rows_of_usual_size() -> None:
    model, x, labels = _padded()
    recording = _measured(model, x, labels, num_steps=1, watched_steps=(0,))
    seen: list[Tensor] = []
    handle = model.embed.register_forward_hook(lambda *hooked: (hooked[-1].retain_grad(), seen.append(hooked[-1]))[0])
    F.cross_entropy(model(x).flatten(0, -2), labels.flatten()).backward()
    handle.remove()
    gradient = seen[0].grad
    assert gradient is not None
    rows = [row for row in recording.rows("observations") if row["metric"] == "start_rows_share"]
    sound = gradient[x != 0].double().norm() / gradient.double().norm()
    assert rows[0]["value"] == pytest.approx(float(sound), rel=0.05)
    assert sound < 1e-2


def test_rows_of_usual_size_keep_their_gradient() -> None:
    model, x, labels = _pictures(class_token=0.5)
    recording = _measured(model, x, labels, num_steps=1, watched_steps=(0,))
    assert [r["value"] for r in recording.rows("observations") if r["metric"] == "start_rows_share"] == [1.0]


def test_growth_of_the_other_rows_is_still_seen() -> None:
    """Branches that multiply: what explodes for all tokens does so beside a class token of zeros too."""
    model, x, labels = _pictures()
    for block in model.blocks:
        block.norm2 = nn.Identity()
        nn.init.normal_(block.mlp[0].weight, std=2.0)
        nn.init.normal_(block.mlp[2].weight, std=2.0)
    assert diagnose(_measured(model, x, labels)).verdict != "will-train"


def test_weights_of_pictures_and_vectors_are_not_taken() -> None:
    assert row_weights(torch.zeros(2, 3)) is None
    assert row_weights(torch.zeros(2, 3, 4, 5)) is None
    weights = row_weights(torch.zeros(2, 3, 4))
    assert weights is not None
    assert weights.tolist() == [[[0.0]] * 3] * 2
