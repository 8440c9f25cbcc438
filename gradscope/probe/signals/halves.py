"""Cosine of the parameter gradients of two disjoint halves of the batch: how noisy the gradient is (McCandlish 2018).

It does not predict trainability at initialisation (area under the curve 0.39 to 0.48); it is reported, not judged.

Cost: deep level; about one plain step, and two copies of the gradients while it lasts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gradscope.probe.signals.subbatch import batch_size, part


def gradient_cosine(model: nn.Module, loss: Callable[[Any], Tensor], batch: Any) -> float | None:
    """Measure the cosine between the gradients of the two halves of a batch.

    Args:
        model: The model; ``.grad`` is left alone.
        loss: The loss of a batch, a scalar.
        batch: The whole batch.

    Returns:
        The cosine, None for batches of one sample or where a half has no gradient.
    """
    size = batch_size(batch)
    if size is None or size < 2:  # noqa: PLR2004 - two halves
        return None
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        return None
    first = torch.autograd.grad(loss(part(batch, 0, size // 2)), parameters, allow_unused=True)
    second = torch.autograd.grad(loss(part(batch, size // 2, size)), parameters, allow_unused=True)
    pairs = [(a.double(), b.double()) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    dot = sum(float((a * b).sum()) for a, b in pairs)
    norms = (sum(float((a * a).sum()) for a, _ in pairs) * sum(float((b * b).sum()) for _, b in pairs)) ** 0.5
    return dot / norms if norms > 0 else None
