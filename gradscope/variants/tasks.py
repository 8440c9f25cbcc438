"""Small tasks that a sound model learns and a broken one does not; the same for every model of a kind.

Data come from generators of their own: making them neither uses nor disturbs torch's global random state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

NUM_BATCHES = 16
"""Batches a subject goes round in: more than the probe's steps, few enough to hold."""

DATA_SEED = 1_609
"""Seed of every task's data, apart from the models' seeds."""


@dataclass(frozen=True)
class Task:
    """Batches and their loss.

    Attributes:
        batches: Tuples of positional arguments of the model.
        loss: ``loss(output, batch)`` to a scalar.
        batches_text: What the batches are, in words.
        loss_text: What the loss is, in words.
        targets: ``targets(batch)``: the right answers, for accuracy.
    """

    batches: list[tuple[torch.Tensor, ...]]
    loss: Callable[[Any, Any], torch.Tensor]
    batches_text: str
    loss_text: str
    targets: Callable[[Any], torch.Tensor]


def generator(offset: int = 0) -> torch.Generator:
    """Make a random generator for data."""
    return torch.Generator().manual_seed(DATA_SEED + offset)


def permuted_previous_token(vocab: int, tokens: int, batch: int, *, num_batches: int = NUM_BATCHES) -> Task:
    """Say a fixed permutation of the token before: y_t = pi(x_(t-1)).

    Attention has to find the previous position and the feed-forward the permutation, so neither alone is enough.
    """
    source = generator()
    permutation = torch.randperm(vocab, generator=source)
    ids = torch.randint(vocab, (num_batches, batch, tokens), generator=source)
    batches: list[tuple[torch.Tensor, ...]] = [(one,) for one in ids]

    def targets(batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        ids = batch[0]
        return permutation.to(ids.device)[ids[:, :-1]]

    def loss(logits: torch.Tensor, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return F.cross_entropy(logits[:, 1:].flatten(0, 1).float(), targets(batch).flatten())

    text = f"the variant's own task: {batch} x {tokens} token ids below {vocab}, every answer fixed by the token before"
    return Task(batches, loss, text, "cross-entropy of the permuted previous token", targets)


def permuted_source_token(vocab: int, tokens: int, batch: int, *, num_batches: int = NUM_BATCHES) -> Task:
    """Translate word by word: target token t is a fixed permutation of source token t; the decoder is fed its past."""
    source = generator(2)
    permutation = torch.randperm(vocab, generator=source)
    ids = torch.randint(vocab, (num_batches, batch, tokens), generator=source)
    batches: list[tuple[torch.Tensor, ...]] = [(one, permutation[one].roll(1, dims=1)) for one in ids]

    def targets(batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return permutation.to(batch[0].device)[batch[0]]

    def loss(logits: torch.Tensor, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return F.cross_entropy(logits.flatten(0, 1).float(), targets(batch).flatten())

    text = f"the variant's own task: {batch} pairs of {tokens} source and target token ids below {vocab}"
    return Task(batches, loss, text, "cross-entropy of the permuted source token", targets)


def recalled_first_token(vocab: int, tokens: int, batch: int, *, num_batches: int = NUM_BATCHES) -> Task:
    """Say at the end which token came first: the gradient has to travel back through the whole sequence."""
    source = generator(3)
    ids = torch.randint(vocab, (num_batches, batch, tokens), generator=source)
    batches: list[tuple[torch.Tensor, ...]] = [(one,) for one in ids]

    def targets(batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return batch[0][:, 0]

    def loss(logits: torch.Tensor, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return F.cross_entropy(logits.float(), targets(batch))

    text = f"the variant's own task: {batch} x {tokens} token ids below {vocab}, the first to be recalled at the end"
    return Task(batches, loss, text, "cross-entropy of the first token", targets)


def noisy_templates(shape: tuple[int, ...], classes: int, batch: int, *, num_batches: int = NUM_BATCHES) -> Task:
    """Tell which of a few random templates an input is nearest to; inputs have unit variance."""
    source = generator(1)
    templates = torch.randn((classes, *shape), generator=source)
    batches: list[tuple[torch.Tensor, ...]] = []
    for _ in range(num_batches):
        labels = torch.randint(classes, (batch,), generator=source)
        noise = torch.randn((batch, *shape), generator=source)
        batches.append(((templates[labels] + noise) / 2**0.5,))

    def targets(batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        flat = batch[0].detach().flatten(1).float()
        return (flat @ templates.flatten(1).to(flat.device).T).argmax(dim=1)

    def loss(logits: torch.Tensor, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return F.cross_entropy(logits.float(), targets(batch))

    size = " x ".join(str(n) for n in (batch, *shape))
    text = f"the variant's own task: {size} numbers, {classes} random templates under noise"
    return Task(batches, loss, text, "cross-entropy of the nearest template", targets)
