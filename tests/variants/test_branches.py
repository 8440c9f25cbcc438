"""Attention, feed-forward and norms against torch's own or the formula."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gradscope.variants import build
from gradscope.variants.attention import Attention, FirstValues
from gradscope.variants.feedforward import make_feedforward
from gradscope.variants.norms import make_norm
from gradscope.variants.rotary import Rotary
from gradscope.variants.wiring import Wiring

X = torch.randn(3, 6, 16, generator=torch.Generator().manual_seed(0))


def explicit(attention: Attention, x: torch.Tensor, causal: bool = False) -> torch.Tensor:
    """Softmax attention head by head, straight from the formula."""
    E = attention.head_width
    group = attention.heads // attention.kv_heads
    heads = []
    for h in range(attention.heads):
        q = attention.q(x)[..., h * E : (h + 1) * E]
        kv = h // group
        k, v = (m(x)[..., kv * E : (kv + 1) * E] for m in (attention.k, attention.v))
        if attention.q_norm is not None:
            q, k = attention.q_norm(q), attention.k_norm(k)
        scores = q @ k.transpose(-1, -2) / math.sqrt(E)
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
        head = scores.softmax(-1) @ v
        heads.append(head if attention.head_scale is None else head * attention.head_scale[h, 0, 0])
    joined = torch.cat(heads, dim=-1)
    return attention.out(joined if attention.norm is None else attention.norm(joined))


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"kv_heads": 2},
        {"kv_heads": 1, "bias": False},
        {"qk_norm": True},
        {"inner_norm": "sub-ln"},
        {"inner_norm": "normformer"},
        {"structure": "decoder"},
    ],
)
def test_attention_is_the_formula(parts):
    torch.manual_seed(0)
    causal = parts.get("structure") == "decoder"
    attention = Attention(Wiring(d_model=16, heads=4, **parts), causal=causal)
    if attention.head_scale is not None:
        attention.head_scale.data.normal_()
    torch.testing.assert_close(attention(X), explicit(attention, X, causal))


def test_attention_equals_torchs_multi_head_attention():
    torch.manual_seed(0)
    ours, theirs = Attention(Wiring(d_model=16, heads=4), causal=False), nn.MultiheadAttention(16, 4, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.q.weight, ours.k.weight, ours.v.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.q.bias, ours.k.bias, ours.v.bias]))
        theirs.out_proj.load_state_dict(ours.out.state_dict())
    torch.testing.assert_close(ours(X), theirs(X, X, X)[0])


def test_rotary_scores_depend_on_distance_alone():
    rotary = Rotary(8, 32)
    q, k = torch.randn(2, 1, 1, 1, 8)
    scores = rotary(q.expand(1, 1, 32, 8)) @ rotary(k.expand(1, 1, 32, 8)).transpose(-1, -2)
    for offset in (-3, 0, 5):
        diagonal = scores[0, 0].diagonal(offset)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(rotary(X.unsqueeze(1)[..., :8]).norm(dim=-1), X.unsqueeze(1)[..., :8].norm(dim=-1))


def test_value_residual_averages_with_the_first_blocks_values():
    first = FirstValues()
    a, b = torch.randn(2, 4)
    assert first.blend(a) is a
    torch.testing.assert_close(first.blend(b), (a + b) / 2)
    first.forget()
    assert first.blend(b) is b


def test_value_residual_starts_anew_in_every_forward():
    model = build("value-residual", layers=3, d_model=16)
    ids = torch.zeros(1, 4, dtype=torch.long)
    assert torch.equal(model(ids), model(ids))


def test_swiglu():
    torch.manual_seed(0)
    swiglu = make_feedforward(Wiring(d_model=16, activation="swiglu"))
    assert swiglu.fc1.out_features == 48
    torch.testing.assert_close(swiglu(X), swiglu.fc2(F.silu(swiglu.gate(X)) * swiglu.fc1(X)))


@pytest.mark.parametrize("inner", ["sub-ln", "normformer"])
def test_inner_norm_stands_before_fc2(inner):
    feedforward = make_feedforward(Wiring(d_model=16, inner_norm=inner))
    expected = feedforward.fc2(F.layer_norm(F.gelu(feedforward.fc1(X)), (64,)))
    torch.testing.assert_close(feedforward(X), expected)


def test_norms_are_their_formulas():
    torch.testing.assert_close(make_norm("layer", 16)(X), F.layer_norm(X, (16,)))
    torch.testing.assert_close(make_norm("rms", 16)(X), X / (X.square().mean(-1, keepdim=True) + 1e-5).sqrt())
    torch.testing.assert_close(make_norm("layer-biased", 16)(X), F.layer_norm(X, (16,)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(make_norm("dyt", 16)(X), torch.tanh(0.5 * X))
    flat = X.flatten(0, 1)
    expected = (flat - flat.mean(0)) / (flat.var(0, unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(make_norm("batch", 16)(X).flatten(0, 1), expected)
    groups = X.view(3, 6, 4, 4)
    expected = (groups - groups.mean(-1, keepdim=True)) / (groups.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(make_norm("group", 16)(X), expected.view_as(X))


@pytest.mark.parametrize("width", [4, 64, 768])
def test_the_unbiased_layernorm_shrinks_by_its_factor(width):
    x = torch.randn(5, width, dtype=torch.float64)
    unbiased, biased = (make_norm(kind, width, 0.0).double()(x) for kind in ("layer-unbiased", "layer-biased"))
    torch.testing.assert_close(unbiased, biased * math.sqrt((width - 1) / width))
