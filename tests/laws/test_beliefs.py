"""Ten things that were measured and that common belief has otherwise: what a user reads about such a model."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradscope

CLASSES, WORDS, LENGTH = 10, 12, 10


def numbers(samples: int, width: int) -> torch.Tensor:
    return torch.randn(samples, width, generator=torch.Generator().manual_seed(5))


def answers(samples: int, classes: int = CLASSES) -> torch.Tensor:
    return torch.randint(classes, (samples,), generator=torch.Generator().manual_seed(6))


def classify(output: torch.Tensor, _: object) -> torch.Tensor:
    return F.cross_entropy(output.float(), answers(len(output), output.shape[-1]))


def stack(depth: int, width: int, activation: Callable[[], nn.Module], std: float | None = None) -> nn.Module:
    torch.manual_seed(4)
    body = [m for _ in range(depth) for m in (nn.Linear(width, width), activation())]
    model = nn.Sequential(*body, nn.Linear(width, CLASSES))
    for layer in model if std is not None else ():
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=std)
    return model


class Block(nn.Module):
    def __init__(self, width: int, *, skip: bool = True, post: bool = False, scale: float | None = None) -> None:
        super().__init__()
        self.r, self.s, self.t, self.u = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.skip, self.post, self.scale = float(skip), post, width**-0.5 if scale is None else scale

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        weights = (self.r(x) @ self.s(x).mT * self.scale).softmax(-1)
        out: torch.Tensor = self.u(weights @ self.t(x))
        return out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.post:
            x = self.one(x + self.attend(x))
            y: torch.Tensor = self.two(x + self.down(F.gelu(self.up(x))))
            return y
        h = self.attend(self.one(x))
        x = x + h if self.skip else h
        f: torch.Tensor = self.down(F.gelu(self.up(self.two(x))))
        return x + f if self.skip else f


class Words(nn.Module):
    def __init__(self, depth: int, width: int = 32, **kind: object) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Parameter(torch.randn(LENGTH, width))
        self.blocks = nn.ModuleList(Block(width, **kind) for _ in range(depth))  # type: ignore[arg-type]
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places
        for block in self.blocks:
            x = block(x)
        out: torch.Tensor = self.head(self.norm(x))
        return out


def read(depth: int, **kind: object) -> gradscope.Inspection:
    torch.manual_seed(4)
    ids = torch.randint(WORDS, (16, LENGTH), generator=torch.Generator().manual_seed(7))

    def previous(output: torch.Tensor, _: object) -> torch.Tensor:
        return F.cross_entropy(output[:, 1:].flatten(0, 1), ids[:, :-1].flatten())

    return gradscope.inspect(Words(depth, **kind), ids, previous)


def codes(found: gradscope.Inspection, severity: str = "error") -> set[str]:
    return {finding.code for finding in found.findings if finding.severity == severity}


def measured(found: gradscope.Inspection, name: str) -> float:
    value = found.diagnosis.metrics[name]
    assert value is not None
    return float(value)


def test_1_tanh_with_unit_weights_explodes_saturated_and_does_not_vanish() -> None:
    found = gradscope.inspect(stack(18, 96, nn.Tanh, 1.0), numbers(64, 96), classify)
    assert found.verdict == "will-not-train"
    assert codes(found) == {"GS102"}
    assert measured(found, "decades") > 5
    assert measured(found, "saturated_fraction") > 0.6
    assert "grows" in str(found)


def test_2_the_sigmoid_alone_says_nothing() -> None:
    wide = gradscope.inspect(stack(18, 128, nn.Sigmoid, 1.0), numbers(64, 128), classify)
    assert not codes(wide)
    assert wide.verdict == "will-train"
    default = gradscope.inspect(stack(18, 128, nn.Sigmoid), numbers(64, 128), classify)
    assert codes(default) == {"GS101"}
    assert default.verdict == "will-not-train"


def test_3_attention_without_its_scale_looks_at_single_keys_and_trains() -> None:
    plain, unscaled = read(3), read(3, scale=1.0)
    assert unscaled.verdict == "will-train"
    assert measured(unscaled, "attention_entropy") < measured(plain, "attention_entropy") - 0.02
    ratio = 10 ** (measured(unscaled, "query_key_to_value_log10") - measured(plain, "query_key_to_value_log10"))
    assert ratio > 2  # queries get more gradient, not less


def test_4_a_deep_post_norm_stack_keeps_its_gradient_and_loses_its_tokens() -> None:
    shallow, deep = read(6, post=True), read(24, post=True)
    assert abs(measured(deep, "decades")) < 1
    assert not codes(shallow)
    assert "GS101" not in codes(deep) | codes(deep, "warning")
    assert measured(deep, "token_cosine") > measured(shallow, "token_cosine") + 0.05


def test_5_without_skips_tokens_collapse_while_the_gradient_lives() -> None:
    found = read(10, skip=False)
    assert found.verdict == "will-not-train"
    assert {"GS301", "GS305"} <= codes(found)
    assert measured(found, "decades") > -3
    assert measured(found, "token_cosine") > 0.999
    assert "tokens" in str(found)


def test_6_batch_norm_does_not_prevent_explosion() -> None:
    torch.manual_seed(4)
    body = [m for _ in range(60) for m in (nn.Linear(48, 48), nn.BatchNorm1d(48), nn.ReLU())]
    found = gradscope.inspect(nn.Sequential(*body, nn.Linear(48, CLASSES)), numbers(64, 48), classify)
    assert codes(found) == {"GS102"}
    assert measured(found, "decades") > 4
    assert "skip" in next(f for f in found.findings if f.code == "GS102").advice


def test_7_a_falling_loss_does_not_mean_that_no_layer_is_dead() -> None:
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(24, 24), nn.Linear(24, 24)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = x + self.b(F.relu(self.a(x)))
            return out

    torch.manual_seed(4)
    model = nn.Sequential(*[Branch() for _ in range(5)], nn.Linear(24, CLASSES))
    nn.init.constant_(model[2].a.bias, -30.0)
    found = gradscope.inspect(model, numbers(64, 24), classify)
    losses = found.recording.tables["steps"]["loss"]
    assert losses[-1] < losses[0]
    assert found.verdict == "at-risk"
    assert [f.module for f in found.findings if f.code == "GS105"] == ["2.a"]


ROOTS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], bool]] = {
    "norm": (lambda z: z.norm(dim=-1, keepdim=True), True),
    "std": (lambda z: z.std(dim=-1, keepdim=True), True),
    "normalize": (lambda z: F.normalize(z, dim=-1), True),
    "root of a sum": (lambda z: z.square().sum(-1, keepdim=True).sqrt(), False),
    "half power": (lambda z: z.square().sum(-1, keepdim=True) ** 0.5, False),
    "root of a variance": (lambda z: z.var(-1, keepdim=True).sqrt(), False),
}


@pytest.mark.parametrize("name", ROOTS)
def test_8_which_roots_are_safe_at_zero(name: str) -> None:
    function, safe = ROOTS[name]

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(6, 8, bias=False), nn.Linear(8, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            z = self.first(x)
            out: torch.Tensor = self.last(z + function(z))
            return out

    torch.manual_seed(4)
    x = numbers(16, 6)
    x[3] = 0.0  # one sample of padding
    found = gradscope.inspect(Net(), x, classify)
    assert ("GS104" in codes(found)) is not safe
    assert found.verdict == ("will-train" if safe else "will-not-train")


def test_9_a_masked_row_poisons_values_and_leaves_queries_and_keys_clean() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.r, self.s, self.t = (nn.Linear(8, 8) for _ in range(3))
            self.head = nn.Linear(8, CLASSES)

        def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
            scores = self.r(x) @ self.s(x).mT
            weights = scores.masked_fill(~keep[:, None], -math.inf).softmax(-1)
            out: torch.Tensor = self.head(torch.where(keep[..., None], weights @ self.t(x), 0.0).sum(1))
            return out

    torch.manual_seed(4)
    x, keep = torch.randn(4, 5, 8), torch.ones(4, 5, dtype=torch.bool)
    keep[1] = False
    found = gradscope.inspect(Net(), (x, keep), classify)
    assert "GS104" in codes(found)
    tables = found.recording.tables
    norms = dict(zip(tables["parameters"]["name"], tables["parameter_stats"]["grad_norm"], strict=False))
    assert math.isnan(norms["t.weight"])
    assert math.isfinite(norms["r.weight"])
    assert math.isfinite(norms["s.weight"])
    assert "softmax" in next(f for f in found.findings if f.code == "GS104").message


def test_10_biases_that_cancel_have_gradients_at_rounding_level_in_healthy_networks() -> None:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, CLASSES))
    found = gradscope.inspect(model, numbers(64, 16), classify)
    bias = found.recording.tables["parameter_stats"]["grad_norm"][1]
    assert bias < 1e-7
    assert found.verdict == "will-train"
    assert not found.findings or not codes(found) | codes(found, "warning")
    attention = read(3)
    assert attention.verdict == "will-train"
    assert not codes(attention) | codes(attention, "warning")
