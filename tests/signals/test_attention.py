from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.signals.watching import watch

B, H, T, D = 1, 4, 12, 8


class Attend(nn.Module):
    """Attention of given queries and keys, by any implementation."""

    def __init__(self, function) -> None:
        super().__init__()
        self.attn = nn.Module()
        self.attn.forward = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.attn(*args).sum()


def plain(q, k, v, mask=None):
    logits = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        logits = logits.masked_fill(~mask, -1e9)
    return logits.softmax(-1) @ v


def reference(q, k, mask=None) -> tuple[float, float]:
    logits = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).detach().double()
    mask = torch.ones_like(logits, dtype=torch.bool) if mask is None else mask.expand_as(logits)
    p = logits.masked_fill(~mask, -math.inf).softmax(-1)
    entropy = -torch.special.xlogy(p, p).sum(-1)
    keys = mask.sum(-1)
    return float((entropy / keys.log())[keys > 1].mean()), float(logits[mask].max())


def qkv(scale: float = 1.0) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [(scale * torch.randn(B, H, T, D)).requires_grad_() for _ in range(3)]


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_fused_and_plain_attention_agree_with_the_formula(scale: float) -> None:
    q, k, v = qkv(scale)
    expected = reference(q, k)
    for function in (F.scaled_dot_product_attention, plain):
        model = Attend(function)
        seen = watch(model, lambda model=model: model(q, k, v))
        assert seen("attention_entropy", "attn") == pytest.approx(expected[0], abs=1e-5)
        assert seen("attention_logit_max", "attn") == pytest.approx(expected[1], rel=1e-5)


def test_causal_masks_in_every_form() -> None:
    q, k, v = qkv(3.0)
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    expected = reference(q, k, mask)
    added = torch.zeros(T, T).masked_fill(~mask, -math.inf)
    for function in (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=added),
        lambda q, k, v: plain(q, k, v, mask),
    ):
        model = Attend(function)
        seen = watch(model, lambda model=model: model(q, k, v))
        assert seen("attention_entropy", "attn") == pytest.approx(expected[0], abs=1e-5)
        assert seen("attention_logit_max", "attn") == pytest.approx(expected[1], rel=1e-5)


def test_grouped_queries_read_their_own_keys() -> None:
    q, k, v = qkv(2.0)
    model = Attend(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True))
    few_k, few_v = k[:, ::2], v[:, ::2]
    expected = reference(q, few_k.repeat_interleave(2, 1))
    seen = watch(model, lambda: model(q, few_k, few_v))
    assert seen("attention_entropy", "attn") == pytest.approx(expected[0], abs=1e-5)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_multihead_attention(batch_first: bool, need_weights: bool) -> None:
    torch.manual_seed(0)
    mha = nn.MultiheadAttention(H * D, H, batch_first=batch_first)
    nn.init.normal_(mha.in_proj_weight, std=0.5)
    nn.init.normal_(mha.in_proj_bias)
    x = torch.randn(1, T, H * D) if batch_first else torch.randn(T, 1, H * D)
    mask = torch.ones(T, T, dtype=torch.bool).triu(1)
    model = Attend(lambda x: mha(x, x, x, attn_mask=mask, need_weights=need_weights)[0])
    q, k, _ = F.linear(x, mha.in_proj_weight, mha.in_proj_bias).reshape(T, 3, H, D).permute(1, 2, 0, 3)
    expected = reference(q, k, ~mask)
    seen = watch(model, lambda: model(x))
    assert seen("attention_entropy", "attn") == pytest.approx(expected[0], abs=1e-5)
    assert seen("attention_logit_max", "attn") == pytest.approx(expected[1], rel=1e-5)


def test_a_softmax_that_is_no_attention_is_left_alone() -> None:
    router = Attend(lambda x: x.softmax(-1))
    x = torch.randn(4, 6, 8, requires_grad=True)
    assert not watch(router, lambda: router(x)).has("attention_entropy", "attn")
    assert watch(router, lambda: router(x), roles={"attn": "attention"}).has("attention_entropy", "attn")


def test_a_softmax_of_a_product_is_an_attention_whatever_it_is_called() -> None:
    x = torch.randn(4, 6, 8, requires_grad=True)
    keep = torch.ones(6, 6, dtype=torch.bool).tril()
    unnamed = Attend(lambda x: ((x @ x.mT) / 8**0.5 + 1.0).masked_fill(~keep, -math.inf).softmax(-1))
    assert watch(unnamed, lambda: unnamed(x)).has("attention_entropy", "attn")


@pytest.mark.parametrize(("softmax", "axis"), [
    (lambda scores: torch.softmax(scores, 0), 0.0),
    (lambda scores: torch.softmax(scores[None], 1), 1.0),
    (lambda scores: torch.softmax(scores, -1), None),
    (lambda scores: torch.softmax(scores.mT, -2).mT, None),
])
def test_a_softmax_over_samples_or_heads_is_told(softmax, axis) -> None:
    x = torch.randn(4, 6, 8, requires_grad=True)
    model = Attend(lambda x: softmax(x @ x.mT))
    seen = watch(model, lambda: model(x))
    assert seen.has("attention_softmax_axis", "attn") is (axis is not None)
    if axis is not None:
        assert seen("attention_softmax_axis", "attn") == axis


def test_rows_with_one_visible_key_have_no_entropy() -> None:
    q, k, v = qkv()
    model = Attend(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=torch.eye(T, dtype=torch.bool)))
    seen = watch(model, lambda: model(q, k, v))
    assert not seen.has("attention_entropy", "attn")
    assert seen.has("attention_logit_max", "attn")
