"""Attention entropy and the largest logit, from the softmax or fused attention call itself.

Entropy of a row over its visible keys, divided by log(number of visible keys): 1 is uniform attention, 0 a hard choice.
Rows that see one key are left out. (Entropy collapse and logit growth: Dehghani 2023; Wortsman 2023.)

Cost: default level; the logits of one sample, 4 heads and 32 queries are copied (a fused call has them recomputed, in
half a dozen kernels), then a dozen kernels for the attention calls of one shape together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradscope.probe.signals.gathered import Gathered
from gradscope.probe.signals.observer import CallKey, Observer, Place, Readings, StepContext

MAX_SAMPLES = 1
MAX_HEADS = 4
MAX_QUERIES = 32
MASKED_BELOW = -1e4
"""Logits below this were masked: models add -inf, the dtype's minimum, -1e9 or -1e4."""
_ROWS = 4  # (B, heads, queries, keys)

_SDPA = F.scaled_dot_product_attention
_MHA = F.multi_head_attention_forward
_SOFTMAX = frozenset({F.softmax, torch.softmax, Tensor.softmax, torch.special.softmax})
_ATTENTION_ROLE = "attention"
_PRODUCTS = frozenset({"Bmm", "Baddbmm"})
_SCALED_OR_MASKED = frozenset({
    "Mul", "Div", "Add", "Sub", "MaskedFill", "Where", "View", "UnsafeView", "ReshapeAlias", "ToCopy", "Clone", "Tanh",
    "Unsqueeze", "Expand", "Slice",
})  # fmt: skip
_MOST_NODES = 24
"""Nodes looked at between a softmax and the product in front of it."""


class Attention(Observer):
    """attention_entropy and attention_logit_max of every attention call, attention_softmax_axis of misled ones."""

    functions = _SOFTMAX | {_SDPA, _MHA}

    def __init__(self, readings: Readings) -> None:
        super().__init__(readings)
        self._attention_modules: set[str] = set()
        self._logits = Gathered(entropy_and_peak)
        self._products: dict[Product, Gathered] = {}
        self._axes: dict[CallKey, int] = {}

    def begin(self, step: int, stations: frozenset[tuple[str, int]] | None) -> None:  # noqa: D102
        self._logits.clear()
        self._products.clear()
        self._axes.clear()

    def wants(self, name: str, module: nn.Module, role: str) -> bool:  # noqa: D102
        if role == _ATTENTION_ROLE:
            self._attention_modules.add(name)
        return False

    def function(  # noqa: D102
        self, call: CallKey, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        if func is _SDPA:
            if self._wait(call, *args, **kwargs):
                return
            logits = _fused_logits(*args, **kwargs)
        elif func is _MHA:
            logits = _packed_logits(args, kwargs)
        else:
            logits = self._plain_logits(call, args, kwargs)
        if logits is not None and logits.shape[-1] > 1:
            self._logits.add(Place(call.module, call.call), _copied_rows(logits))

    def _wait(
        self, call: CallKey, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
        dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> bool:  # fmt: skip
        """Copy the few queries and keys that are looked at, to be multiplied later; False where it takes more."""
        if attn_mask is not None or query.dim() != _ROWS or key.dim() != _ROWS or query.is_nested:
            return False
        (_, num_heads, num_queries, width), num_keys = query.shape, key.shape[2]
        if key.shape[1] != num_heads or num_keys < 2:  # noqa: PLR2004 - of one key there is no entropy
            return False
        step = _stride(num_queries)
        some = (few[:MAX_SAMPLES, :MAX_HEADS] for few in (query[:, :, ::step], key))
        product = Product(num_keys, is_causal, scale if scale is not None else width**-0.5, step)
        gathered = self._products.setdefault(product, Gathered(product.entropy_and_peak))
        gathered.add(Place(call.module, call.call), torch.cat(list(some), dim=2))
        return True

    def _plain_logits(self, call: CallKey, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        logits = args[0] if args else kwargs.get("input")
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if not isinstance(logits, Tensor) or not isinstance(dim, int | None):
            return None
        axis = _axis(logits, dim)
        if axis != logits.dim() - 1:
            if axis < logits.dim() - 2 and _is_product(logits):
                self._axes[call] = axis
            return None
        if logits.dim() == _ROWS:
            return logits[:MAX_SAMPLES, :MAX_HEADS, :: _stride(logits.shape[2])]
        if logits.dim() == _ROWS - 1 and (self._inside_attention(call.module) or _is_product(logits)):
            return logits[: MAX_SAMPLES * MAX_HEADS, :: _stride(logits.shape[1])]
        return None

    def _inside_attention(self, name: str) -> bool:
        parts = name.split(".")
        return any(".".join(parts[:n]) in self._attention_modules for n in range(len(parts) + 1))

    def finish(self, context: StepContext) -> None:  # noqa: D102
        found: dict[CallKey, list[list[float]]] = {}
        for gathered in (self._logits, *self._products.values()):
            gathered.finish(self.readings, lambda key, numbers: found.setdefault(key, []).append(numbers))
        self.readings.at_end(lambda: self._record(found))

    def _record(self, found: dict[CallKey, list[list[float]]]) -> None:
        """Write down the worst of the attentions inside each module call."""
        for key, axis in self._axes.items():
            self.readings.add("attention_softmax_axis", key.module, key.call, float(axis))
        for key, pairs in found.items():
            entropies = [entropy for entropy, _ in pairs if not math.isnan(entropy)]
            if entropies:
                self.readings.add("attention_entropy", key.module, key.call, min(entropies))
            self.readings.add("attention_logit_max", key.module, key.call, max(peak for _, peak in pairs))


def _axis(logits: Tensor, dim: int | None) -> int:
    """Return the axis a softmax runs over, from 0; left out it is what `torch.nn.functional.softmax` falls back to."""
    if dim is None:
        return 0 if logits.dim() in (0, 1, 3) else 1
    return dim % max(1, logits.dim())


def _is_product(logits: Tensor) -> bool:
    """Whether logits are a product of two batches of matrices, scaled and masked at most: queries times keys."""
    queue = [logits.grad_fn]
    for node in queue:
        if node is None:
            continue
        name = node.name().rstrip("0123456789").removesuffix("Backward")
        if name in _PRODUCTS:
            return True
        if name in _SCALED_OR_MASKED and len(queue) < _MOST_NODES:
            queue += [source for source, _ in node.next_functions]
    return False


def _copied_rows(logits: Tensor) -> Tensor:
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


def _stride(num_queries: int) -> int:
    return max(1, -(-num_queries // MAX_QUERIES))


def _fused_logits(
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
    if query.dim() != _ROWS or key.dim() != _ROWS or query.is_nested:
        return None
    step = _stride(query.shape[2])
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


def _packed_logits(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Recompute the logits of ``multi_head_attention_forward`` for the first sample's first heads."""
    named = dict(zip(_MHA_ARGUMENTS, args, strict=False)) | kwargs
    query, key, num_heads = named["query"], named["key"], named["num_heads"]
    if query.is_nested or named.get("bias_k") is not None or named.get("add_zero_attn"):
        return None
    if query.dim() == _ROWS - 2:
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
    step = _stride(query.shape[0])
    q = F.linear(query[::step, 0], weight_q, bias_q).view(-1, rows // head_width, head_width).transpose(0, 1)
    k = F.linear(key[:, 0], weight_k, bias_k).view(-1, rows // head_width, head_width).transpose(0, 1)
    logits: Tensor = (q @ k.transpose(-2, -1)).to(torch.float32) * head_width**-0.5
    mask = named.get("attn_mask")
    if mask is not None:
        mask = mask[: logits.shape[0]] if mask.dim() == _ROWS - 1 else mask  # the first sample's heads come first
        logits = _hidden(logits, mask[..., ::step, :])
    padding = named.get("key_padding_mask")
    if padding is not None:
        logits = _hidden(logits, padding[:1] if padding.dim() > 1 else padding)
    return logits


def _hidden(logits: Tensor, mask: Tensor) -> Tensor:
    """Apply a mask as MultiheadAttention does: True is hidden, numbers are added."""
    return logits.masked_fill(mask, -math.inf) if mask.dtype is torch.bool else logits + mask


_MHA_ARGUMENTS = (
    "query", "key", "value", "embed_dim_to_check", "num_heads", "in_proj_weight", "in_proj_bias", "bias_k", "bias_v",
    "add_zero_attn", "dropout_p", "out_proj_weight", "out_proj_bias", "training", "key_padding_mask", "need_weights",
    "attn_mask", "use_separate_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight",
)  # fmt: skip
