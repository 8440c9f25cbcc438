"""How much a network's output moves when its weights do (Liu 2020, Admin: what makes Post-LN hard to train)."""

from __future__ import annotations

import torch

from gradscope.target.subject import Subject

NOISE = 0.01
"""Relative size of the weight noise."""


@torch.no_grad()
def amplification(subject: Subject, seed: int) -> float:
    """Relative change of the stream's end under 1 % noise on the blocks' weights, divided by 1 %.

    Args:
        subject: A token model; its weights are left as they were.
        seed: Of the noise.
    """
    batch = next(iter(subject.batches))
    before = subject.call(batch)
    noise = torch.Generator().manual_seed(seed)
    blocks = subject.model.get_submodule("blocks")
    weights = [weight for weight in blocks.parameters() if weight.ndim > 1]
    saved = [weight.clone() for weight in weights]
    for weight in weights:
        weight.add_(NOISE * weight.std() * torch.randn(weight.shape, generator=noise))
    after = subject.call(batch)
    for weight, old in zip(weights, saved, strict=True):
        weight.copy_(old)
    return float((after - before).norm() / before.norm()) / NOISE
