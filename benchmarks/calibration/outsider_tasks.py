"""Tasks of the third blind test beside those of the variants: what is asked, and the losses people put on it.

Shapes: B samples, N nodes, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gradscope.variants.tasks import Task, noisy_templates

SEED, NUM_BATCHES = 2_017, 16
CLASSES = 10


def _source(offset: int) -> torch.Generator:
    return torch.Generator().manual_seed(SEED + offset)


def _task(batches: list[Any], loss: Callable[[Any, Any], Tensor], text: str) -> Task:
    return Task(batches, loss, text, text, lambda batch: batch[0])


def classes(loss: Callable[[Tensor, Tensor], Tensor], size: int = 48, **options: Any) -> Task:
    """Tell templates under noise apart, with another loss(logits, labels) than cross-entropy."""
    task = noisy_templates((size,), CLASSES, 64, **options)
    return replace(task, loss=lambda out, batch: loss(out.float(), task.targets(batch)))


def cleaned(shape: tuple[int, ...], batch: int) -> Task:
    """Give the template without its noise: mean squared error, 1 for a guess."""
    source = _source(1)
    templates = torch.randn((CLASSES, *shape), generator=source)
    batches = []
    for _ in range(NUM_BATCHES):
        labels = torch.randint(CLASSES, (batch,), generator=source)
        noise = torch.randn((batch, *shape), generator=source)
        batches.append(((templates[labels] + noise) / 2**0.5,))

    def loss(out: Tensor, batch: tuple[Tensor]) -> Tensor:
        flat = batch[0].detach().flatten(1)
        nearest = (flat @ templates.flatten(1).to(flat.device).T).argmax(1)
        return F.mse_loss(out, templates.to(out.device)[nearest])

    return _task(batches, loss, "templates to be freed of their noise")


def heights(scale: float = 1.0, shift: float = 0.0) -> Task:
    """Give the height of a smooth field at two coordinates; `scale` squared for a guess."""
    source = _source(2)
    batches = [(torch.rand(256, 2, generator=source) * 2 - 1,) for _ in range(NUM_BATCHES)]

    def loss(out: Tensor, batch: tuple[Tensor]) -> Tensor:
        x, y = batch[0].unbind(-1)
        field = (1.4 * torch.sin(3.0 * x) * torch.cos(2.5 * y) + 0.7 * y) / 0.578**0.5
        return F.mse_loss(out, scale * field + shift)

    return _task(batches, loss, "heights of a field")


def density() -> Task:
    """Learn the density of four clusters in eight dimensions: nats beyond the best, 1 for a guess."""
    source, dims, spread = _source(3), 8, 0.2
    centres = torch.randn(4, dims, generator=source)
    centres = (centres - centres.mean(0)) / centres.std(0, correction=0)
    batches = []
    for _ in range(NUM_BATCHES):
        labels = torch.randint(4, (128,), generator=source)
        noise = torch.randn(128, dims, generator=source)
        batches.append(((centres[labels] + spread * noise) / (1 + spread**2) ** 0.5,))
    normal = 0.5 * dims * math.log(2 * math.pi)
    best = math.log(4) + 0.5 * dims * math.log(2 * math.pi * math.e * spread**2 / (1 + spread**2))
    guess = normal + 0.5 * dims

    def loss(out: tuple[Tensor, Tensor], _: Any) -> Tensor:
        latent, logdet = out
        surprise = normal + 0.5 * latent.square().sum(-1) - logdet
        return (surprise.mean() - best) / (guess - best)

    return _task(batches, loss, "density of clusters")


def pairs(size: int = 48) -> Task:
    """Find the other view of each of 32 vectors, whose louder half is noise: cross-entropy over the batch."""
    source = _source(4)
    turn, _ = torch.linalg.qr(torch.randn(size, size, generator=source))
    batches = []
    for _ in range(NUM_BATCHES):
        meaning = torch.randn(32, size // 2, generator=source)
        noise = 3.0 * torch.randn(2, 32, size // 2, generator=source)
        batches.append(tuple(torch.cat((meaning, one), -1) @ turn / 5**0.5 for one in noise))

    def loss(scores: Tensor, _: Any) -> Tensor:
        return F.cross_entropy(scores, torch.arange(len(scores), device=scores.device))

    return _task(batches, loss, "pairs of views")


def communities(features: int = 16) -> tuple[Task, Tensor]:
    """Name the class of every node from noisy features; the neighbours share it. Returns the task and the links."""
    source, nodes = _source(5), 15
    templates = torch.randn(CLASSES, features, generator=source)
    home = torch.arange(nodes) // 5
    links = (home[:, None] == home).float()
    links[torch.arange(0, 15, 5), (torch.arange(0, 15, 5) + 5) % 15] = 1.0
    links = torch.maximum(links, links.mT)
    batches = []
    for _ in range(NUM_BATCHES):
        labels = torch.randint(CLASSES, (32, 3), generator=source)[:, home]
        noise = torch.randn(32, nodes, features, generator=source)
        batches.append(((templates[labels] + noise) / 2**0.5,))

    def loss(out: Tensor, batch: tuple[Tensor]) -> Tensor:
        shared = batch[0].unflatten(1, (3, 5)).mean(2) @ templates.to(out.device).T
        labels = shared.argmax(-1)[:, home]
        return F.cross_entropy(out.flatten(0, 1), labels.flatten())

    return _task(batches, loss, "nodes of a graph"), links


def squared_one_hot(logits: Tensor, labels: Tensor) -> Tensor:
    """Squared error against one-hot answers, over that of a constant guess."""
    return F.mse_loss(logits, F.one_hot(labels, CLASSES).float()) / 0.09


def squared_probabilities(logits: Tensor, labels: Tensor) -> Tensor:
    """The same of softmax probabilities."""
    return squared_one_hot(logits.softmax(-1), labels)


def smoothed(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy with smoothed labels."""
    return F.cross_entropy(logits, labels, label_smoothing=0.1)


def twice_softmax(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of probabilities that are taken for logits."""
    return F.cross_entropy(logits.softmax(-1), labels)


def softmax_over_samples(logits: Tensor, labels: Tensor) -> Tensor:
    """Likelihood of a softmax that was taken over the wrong axis."""
    return F.nll_loss(logits.log_softmax(0), labels)


def floored(floor: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a likelihood of probabilities that are kept above a floor."""
    return lambda logits, labels: F.nll_loss(logits.softmax(-1).clamp(min=floor).log(), labels)


def times(factor: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Return cross-entropy times a factor."""
    return lambda logits, labels: F.cross_entropy(logits, labels) * factor


def summed(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy summed over the batch."""
    return F.cross_entropy(logits, labels, reduction="sum")


def averaged_first(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of logits that were averaged over the samples."""
    return F.cross_entropy(logits.mean(0, keepdim=True).expand_as(logits), labels)


def of_sigmoids(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy of sigmoids of ReLUs: no class can fall below a half."""
    return F.binary_cross_entropy(torch.sigmoid(F.relu(logits)), F.one_hot(labels, CLASSES).float())
