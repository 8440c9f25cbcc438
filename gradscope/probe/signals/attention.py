"""Attention entropy and the largest logit, from the softmax or fused attention call itself.

Entropy of a row over its visible keys, divided by log(number of visible keys): 1 is uniform attention, 0 a hard choice.
Rows that see one key are left out. (Entropy collapse and logit growth: Dehghani 2023; Wortsman 2023.)

Cost: default level; the logits of one sample, 4 heads and 32 queries are copied (a fused call has them recomputed, in
half a dozen kernels), then a dozen kernels for the attention calls of one shape together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradscope.probe.signals.gathered import Gathered
from gradscope.probe.signals.logits import (
    MAX_HEADS,
    MAX_SAMPLES,
    NUM_AXES,
    Product,
    copied_rows,
    entropy_and_peak,
    fused_logits,
    packed_logits,
    stride,
)
from gradscope.probe.signals.observer import CallKey, Observer, Place, Readings, StepContext

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
            logits = fused_logits(*args, **kwargs)
        elif func is _MHA:
            logits = packed_logits(args, kwargs)
        else:
            logits = self._plain_logits(call, args, kwargs)
        if logits is not None and logits.shape[-1] > 1:
            self._logits.add(Place(call.module, call.call), copied_rows(logits))

    def _wait(
        self, call: CallKey, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
        dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> bool:  # fmt: skip
        """Copy the few queries and keys that are looked at, to be multiplied later; False where it takes more."""
        if attn_mask is not None or query.dim() != NUM_AXES or key.dim() != NUM_AXES or query.is_nested:
            return False
        (_, num_heads, num_queries, width), num_keys = query.shape, key.shape[2]
        if key.shape[1] != num_heads or num_keys < 2:  # noqa: PLR2004 - of one key there is no entropy
            return False
        step = stride(num_queries)
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
        if logits.dim() == NUM_AXES:
            return logits[:MAX_SAMPLES, :MAX_HEADS, :: stride(logits.shape[2])]
        if logits.dim() == NUM_AXES - 1 and (self._inside_attention(call.module) or _is_product(logits)):
            return logits[: MAX_SAMPLES * MAX_HEADS, :: stride(logits.shape[1])]
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


