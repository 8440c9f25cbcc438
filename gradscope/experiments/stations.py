"""Activations and gradients along the stream of a built-in model, read with plain autograd.

The experiments measure with their own few lines rather than with the probe, so that the two check each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from gradscope.target.subject import Batch, Subject


def stream_modules(model: nn.Module) -> list[nn.Module]:
    """Return the modules whose outputs are the stream: what starts it, then each block."""
    if isinstance(stages := getattr(model, "stages", None), nn.ModuleList):
        start = next(part for part in (model.pool, model.stem_norm, model.stem) if part is not None)
        assert isinstance(start, nn.Module)
        return [start, *(block for stage in stages for block in stage.children())]
    if isinstance(layers := getattr(model, "layers", None), nn.ModuleList):
        return list(layers)
    assert isinstance(model.embed, nn.Module)
    assert isinstance(model.blocks, nn.ModuleList | nn.Sequential)
    return [model.embed, *model.blocks]


def record_stream(subject: Subject, batch: Batch) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Run forward and backward on one batch.

    Returns:
        The stream's activations in order, each with its gradient in ``.grad``, and the loss. Parameter gradients are
        left on the model.
    """
    kept: list[torch.Tensor] = []

    def keep(_module: nn.Module, _inputs: Any, output: Any) -> None:
        tensor = output[0] if isinstance(output, tuple) else output
        tensor.retain_grad()
        kept.append(tensor)

    subject.model.zero_grad(set_to_none=True)
    with ExitStack() as hooks:
        for module in stream_modules(subject.model):
            hooks.callback(module.register_forward_hook(keep).remove)
        loss = subject.loss(subject.call(batch), batch)
        loss.backward()
    return kept, loss.detach()


def norm(tensor: torch.Tensor | None) -> float:
    """L2 norm in double precision; nan for a gradient that never arrived."""
    return math.nan if tensor is None else float(tensor.detach().double().norm())


def gradient_norms(stream: Sequence[torch.Tensor]) -> list[float]:
    """Gradient norms along the stream."""
    return [norm(tensor.grad) for tensor in stream]


def decades_between(first: float, last: float) -> float:
    """log10(first / last), -inf for a first that is zero, nan where it is not defined."""
    if first == 0 and last > 0:
        return -math.inf
    if not (math.isfinite(first) and math.isfinite(last)) or last == 0:
        return math.nan
    return math.log10(first / last)


def total_decades(subject: Subject) -> float:
    """D = log10(|g_0| / |g_L|) on the subject's first batch."""
    stream, _ = record_stream(subject, next(iter(subject.batches)))
    norms = gradient_norms(stream)
    return decades_between(norms[0], norms[-1])


def token_cosine(x_BTD: torch.Tensor) -> float:
    """Mean cosine between different tokens of a sequence."""
    unit = nn.functional.normalize(x_BTD.detach().double(), dim=-1)
    num_tokens = unit.shape[1]
    gram = unit @ unit.transpose(1, 2)
    off_diagonal = gram.sum(dim=(1, 2)) - gram.diagonal(dim1=1, dim2=2).sum(dim=1)
    return float((off_diagonal / (num_tokens * (num_tokens - 1))).mean())


def parameter_norms(model: nn.Module, prefix: str) -> list[float]:
    """Gradient norms of the parameters whose names start with the prefix."""
    return [norm(p.grad) for name, p in model.named_parameters() if name.startswith(prefix) and p.grad is not None]
