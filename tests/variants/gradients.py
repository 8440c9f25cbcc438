"""Plain-autograd measurements of a variant, independent of gradscope's probe."""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from gradscope import variants
from gradscope.target.subject import Subject


def stations(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The modules whose outputs are the stream's start and end."""
    if hasattr(model, "decoder"):
        return model.embed, model.decoder[-1]
    if hasattr(model, "blocks"):
        return model.embed, model.blocks[-1]
    if hasattr(model, "stages"):
        return model.pool or model.stem_norm or model.stem, model.stages[-1][-1]
    return model.layers[0], model.layers[-1]


def end_gradients(subject: Subject) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss's gradients at the stream's start and end; leaves parameter gradients behind."""
    kept: list[torch.Tensor] = []

    def keep(_module: nn.Module, _inputs: Any, output: Any) -> None:
        output = output[0] if isinstance(output, tuple) else output
        output.retain_grad()
        kept.append(output)

    batch = next(iter(subject.batches))
    with ExitStack() as hooks:
        for module in stations(subject.model):
            hooks.callback(module.register_forward_hook(keep).remove)
        subject.loss(subject.call(batch), batch).backward()
    start, end = kept
    assert start.grad is not None
    assert end.grad is not None
    return start.grad, end.grad


def time_gradients(subject: Subject) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss's gradients at the embeddings of the first and the last token of a recurrent network."""
    kept: list[torch.Tensor] = []

    def keep(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
        output.retain_grad()
        kept.append(output)

    batch = next(iter(subject.batches))
    handle = subject.model.embed.register_forward_hook(keep)
    subject.loss(subject.call(batch), batch).backward()
    handle.remove()
    assert kept[0].grad is not None
    return kept[0].grad[:, 0], kept[0].grad[:, -1]


def decades(name: str, seed: int = 0, **arguments: Any) -> float:
    """D = log10(|g_0| / |g_L|) of a variant at initialisation."""
    start, end = end_gradients(variants.subject(name, arguments, seed))
    return math.log10(start.double().norm().item() / end.double().norm().item())


def mean_decades(name: str, seeds: int, **arguments: Any) -> float:
    """D averaged over re-initialisations."""
    return sum(decades(name, seed, **arguments) for seed in range(seeds)) / seeds
