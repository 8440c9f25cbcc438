"""Logits of an attention call, of a few samples, heads and queries; recomputed where the call is fused.

Shape legend: N sets, B samples, H heads, R rows (queries), K keys, T queries and keys together, D width of a head.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

MAX_SAMPLES, MAX_HEADS, MAX_QUERIES = 1, 4, 32
"""How much of one attention is looked at: enough for a mean over its rows, at a bounded cost."""
MASKED_BELOW = -1e4
"""Logits below this were masked: models add -inf, the dtype's minimum, -1e9 or -1e4."""
NUM_AXES = 4
"""Axes of logits: samples, heads, queries, keys."""

_MHA_ARGUMENTS = (
    "query", "key", "value", "embed_dim_to_check", "num_heads", "in_proj_weight", "in_proj_bias", "bias_k", "bias_v",
    "add_zero_attn", "dropout_p", "out_proj_weight", "out_proj_bias", "training", "key_padding_mask", "need_weights",
    "attn_mask", "use_separate_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight",
)  # fmt: skip
"""The arguments of `multi_head_attention_forward`, in their order."""


def copied_rows(logits: Tensor) -> Tensor:
    """Return logits as rows over the keys, in memory of their own: what they lie in may be written to later."""
    return logits.to(torch.float32, copy=True).reshape(-1, logits.shape[-1])


def entropy_and_peak(logits_NRK: Tensor) -> Tensor:
    """Return (mean normalised entropy, largest visible logit) of each of N sets of rows of logits over K keys.

    The entropy is NaN where no row of a set sees more than one key.
    """
    visible = logits_NRK > MASKED_BELOW
    num_keys = visible.sum(-1)
    log_p = torch.log_softmax(logits_NRK.masked_fill(~visible, -math.inf), dim=-1)
    entropy = -(log_p.exp() * log_p.masked_fill(~visible, 0.0)).sum(-1)
    counted = num_keys > 1
    shares = torch.where(counted, entropy / num_keys.clamp_min(2).log(), 0.0)
    return torch.stack([shares.sum(1) / counted.sum(1), logits_NRK.amax((1, 2))], dim=1)


class Product(NamedTuple):
    """How logits come from queries and keys that wait together, the queries first: (N, B, heads, queries + keys, D)."""

    num_keys: int
    is_causal: bool
    scale: float
    step: int

    def entropy_and_peak(self, rows_NBHTD: Tensor) -> Tensor:
        """Return what the function of that name does of the logits."""
        rows = rows_NBHTD.to(torch.float32)
        queries, keys = rows[..., : -self.num_keys, :], rows[..., -self.num_keys :, :]
        logits = queries @ keys.transpose(-2, -1) * self.scale
        if self.is_causal:
            later = _later_keys(queries.shape[3] * self.step, self.step, self.num_keys, logits.device)
            logits = logits.masked_fill(later, -math.inf)
        return entropy_and_peak(logits.flatten(1, 3))


def stride(num_queries: int) -> int:
    """Return the step between the queries that are looked at."""
    return max(1, -(-num_queries // MAX_QUERIES))


def fused_logits(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor | None:
    """Recompute the logits of a fused attention call for a few samples, heads and queries."""
    if query.dim() != NUM_AXES or key.dim() != NUM_AXES or query.is_nested:
        return None
    step = stride(query.shape[2])
    num_heads = min(MAX_HEADS, query.shape[1])
    few_queries = query[:MAX_SAMPLES, :num_heads, ::step].to(torch.float32)
    few_keys = _keys_of_heads(key, num_heads, query.shape[1]).to(torch.float32)
    logits = few_queries @ few_keys.transpose(-2, -1) * (scale if scale is not None else query.shape[-1] ** -0.5)
    num_queries, num_keys = query.shape[2], key.shape[2]
    if is_causal:
        logits = logits.masked_fill(_later_keys(num_queries, step, num_keys, query.device), -math.inf)
    if attn_mask is not None:
        mask = attn_mask.expand(query.shape[0], query.shape[1], num_queries, num_keys)
        logits = _masked(logits, mask[:MAX_SAMPLES, :num_heads, ::step])
    return logits


def _keys_of_heads(key: Tensor, num_heads: int, query_heads: int) -> Tensor:
    """Return the keys of the first query heads; grouped, head h reads key head h * (key heads) / (query heads)."""
    if key.shape[1] == query_heads:
        return key[:MAX_SAMPLES, :num_heads]
    return torch.stack([key[:MAX_SAMPLES, h * key.shape[1] // query_heads] for h in range(num_heads)], dim=1)


@lru_cache(maxsize=8)
def _later_keys(num_queries: int, step: int, num_keys: int, device: torch.device) -> Tensor:
    """Return which keys come after each of the queries that are looked at."""
    rows = torch.arange(0, num_queries, step, device=device)[:, None]
    return torch.arange(num_keys, device=device) > rows


def _masked(logits: Tensor, mask: Tensor) -> Tensor:
    """Apply a mask as scaled_dot_product_attention does: True is visible, numbers are added."""
    return logits.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else logits + mask


def packed_logits(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Recompute the logits of ``multi_head_attention_forward`` for the first sample's first heads."""
    named = dict(zip(_MHA_ARGUMENTS, args, strict=False)) | kwargs
    query, key, num_heads = named["query"], named["key"], named["num_heads"]
    if query.is_nested or named.get("bias_k") is not None or named.get("add_zero_attn"):
        return None
    if query.dim() == NUM_AXES - 2:
        query, key = query.unsqueeze(1), key.unsqueeze(1)
    width = named["embed_dim_to_check"]
    head_width = width // num_heads
    rows = min(MAX_HEADS, num_heads) * head_width
    if named.get("use_separate_proj_weight"):
        weight_q, weight_k = named["q_proj_weight"][:rows], named["k_proj_weight"][:rows]
    else:
        weight_q, weight_k = named["in_proj_weight"][:rows], named["in_proj_weight"][width : width + rows]
    bias = named.get("in_proj_bias")
    bias_q, bias_k = (None, None) if bias is None else (bias[:rows], bias[width : width + rows])
    step = stride(query.shape[0])
    q = F.linear(query[::step, 0], weight_q, bias_q).view(-1, rows // head_width, head_width).transpose(0, 1)
    k = F.linear(key[:, 0], weight_k, bias_k).view(-1, rows // head_width, head_width).transpose(0, 1)
    logits: Tensor = (q @ k.transpose(-2, -1)).to(torch.float32) * head_width**-0.5
    mask = named.get("attn_mask")
    if mask is not None:
        mask = mask[: logits.shape[0]] if mask.dim() == NUM_AXES - 1 else mask  # the first sample's heads come first
        logits = _hidden(logits, mask[..., ::step, :])
    padding = named.get("key_padding_mask")
    if padding is not None:
        logits = _hidden(logits, padding[:1] if padding.dim() > 1 else padding)
    return logits


def _hidden(logits: Tensor, mask: Tensor) -> Tensor:
    """Apply a mask as MultiheadAttention does: True is hidden, numbers are added."""
    return logits.masked_fill(mask, -math.inf) if mask.dtype is torch.bool else logits + mask
