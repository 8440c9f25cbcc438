"""A loss made up for a model that brings none: sound, fixed, and marked as made up.

A plain sum or mean would have an (almost) zero gradient behind a final normalisation layer, so outputs are compared
with fixed random labels or targets. Every target comes from a generator of its own: the global one does not notice,
and the same batch meets the same target at every step.

Shape legend: B batch, C classes, T tokens or any further axes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from gradscope.errors import LossError
from gradscope.target.losses.leaves import named_tensors
from gradscope.target.subject import Batch

SEED = 604
"""Seed of all made-up targets (and the number of the rule that reports them)."""
TOLERANCE = 1e-3
"""How far probabilities may sum from one; half-precision softmax over 50,000 classes stays within it."""
SMALLEST_PROBABILITY = 1e-12
"""Keeps log(p) finite without touching any probability that float32 can tell from zero in a sum of one."""

RESHAPING = ("View", "UnsafeView", "Squeeze", "Unsqueeze", "Select", "Slice", "ToCopy", "Permute", "Transpose")
"""Beginnings of the names of autograd nodes that leave every value as it is."""


@dataclass(frozen=True)
class Term:
    """What is done with one output.

    Attributes:
        path: Where the output is in what the model returns.
        kind: One of the keys of LOSSES.
    """

    path: str
    kind: str


class MadeUpLoss:
    """The mean of one term per output; callable as ``loss(output, batch)``."""

    def __init__(self, terms: list[Term]) -> None:
        self.terms = terms

    def __call__(self, output: Any, batch: Batch = None) -> torch.Tensor:
        """Return the scalar loss of one output.

        Raises:
            LossError: If this output lacks the tensors that the first one had.
        """
        tensors = dict(named_tensors(output))
        present = [
            LOSSES[t.kind][0](tensors[t.path]) for t in self.terms if t.path in tensors and tensors[t.path].numel()
        ]
        if not present:
            raise LossError(
                "The model's output lacks the tensors it had on the first batch.", rule="Pass --loss file:function."
            )
        return present[0] if len(present) == 1 else torch.stack(present).mean()

    def describe(self, output: Any) -> str:
        """Say in words what is compared with what."""
        tensors = dict(named_tensors(output))
        parts = [
            LOSSES[t.kind][1]
            + " for "
            + (f"output {t.path} " if t.path else "the output ")
            + "x".join(map(str, tensors[t.path].shape))
            for t in self.terms
        ]
        return ", and ".join(parts) + "; --loss file:function gives yours"


def classes_last(output_BTC: torch.Tensor) -> torch.Tensor:
    """Cross-entropy against fixed random labels, classes on the last axis."""
    labels = _labels(output_BTC.shape[:-1], output_BTC.shape[-1], output_BTC)
    return F.cross_entropy(_real(output_BTC).reshape(-1, output_BTC.shape[-1]), labels.reshape(-1))


def classes_first(output_BCT: torch.Tensor) -> torch.Tensor:
    """Cross-entropy against fixed random labels, classes on axis 1."""
    labels = _labels(output_BCT.shape[:1] + output_BCT.shape[2:], output_BCT.shape[1], output_BCT)
    return F.cross_entropy(_real(output_BCT), labels)


def probabilities(output_BTC: torch.Tensor) -> torch.Tensor:
    """Negative log-likelihood of fixed random labels under probabilities on the last axis."""
    return log_probabilities(_real(output_BTC).clamp_min(SMALLEST_PROBABILITY).log())


def log_probabilities(output_BTC: torch.Tensor) -> torch.Tensor:
    """Negative log-likelihood of fixed random labels under log-probabilities on the last axis."""
    labels = _labels(output_BTC.shape[:-1], output_BTC.shape[-1], output_BTC)
    return F.nll_loss(_real(output_BTC).reshape(-1, output_BTC.shape[-1]), labels.reshape(-1))


def yes_or_no(output: torch.Tensor) -> torch.Tensor:
    """Binary cross-entropy of probabilities against fixed random answers."""
    return F.binary_cross_entropy(_real(output), _labels(output.shape, 2, output).to(_real(output).dtype))


def regression(output: torch.Tensor) -> torch.Tensor:
    """Mean squared distance to a fixed random target of unit variance."""
    real = _real(output)
    target = torch.randn(real.shape, generator=torch.Generator().manual_seed(SEED)).to(real)
    return F.mse_loss(real, target)


LOSSES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "classes_last": (classes_last, "cross-entropy against fixed random labels"),
    "classes_first": (classes_first, "cross-entropy against fixed random labels (classes on axis 1)"),
    "probabilities": (probabilities, "negative log-likelihood of fixed random labels (the output is a softmax)"),
    "log_probabilities": (
        log_probabilities,
        "negative log-likelihood of fixed random labels (the output is a log-softmax)",
    ),
    "yes_or_no": (yes_or_no, "binary cross-entropy against fixed random answers (the output is a sigmoid)"),
    "regression": (regression, "mean squared error against a fixed random target"),
}


def kind_of(output: torch.Tensor, batch: Batch) -> str:
    """Choose what an output is to be compared with, by its shape and values and by the inputs' shapes."""
    if output.is_complex() or output.dim() == 0:
        return "regression"
    values = output.detach().float()
    if output.dim() > 1 and output.shape[-1] > 1:
        if bool((values >= 0).all()) and bool((values.sum(-1) - 1).abs().max() < TOLERANCE):
            return "probabilities"
        if bool((values <= 0).all()) and bool(values.logsumexp(-1).abs().max() < TOLERANCE):
            return "log_probabilities"
    if output.shape[-1:] == (1,) or output.dim() == 1:
        inside = bool((values > 0).all()) and bool((values < 1).all())
        return "yes_or_no" if inside and _may_be_bounded(output) else "regression"
    if output.dim() == 2:  # noqa: PLR2004  # B x C
        return "classes_last"
    return _kind_of_dense(output, [tensor for _, tensor in named_tensors(batch)])


def _kind_of_dense(output: torch.Tensor, inputs: list[torch.Tensor]) -> str:
    """An output with more axes: token logits, pixel logits, or features and pictures to regress."""
    ids = [t for t in inputs if not t.is_floating_point() and t.numel() and t.dtype is not torch.bool]
    if any(output.shape[:-1] == t.shape and output.shape[-1] > int(t.max()) > 1 for t in ids):
        return "classes_last"
    pictures = [t for t in inputs if t.is_floating_point() and t.dim() == output.dim() >= 4]  # noqa: PLR2004  # B x C x H x W
    if any(output.shape[2:] == t.shape[2:] and output.shape[1] not in (1, t.shape[1]) for t in pictures):
        return "classes_first"
    return "regression"


def _may_be_bounded(output: torch.Tensor) -> bool:
    """Whether values between 0 and 1 will stay there: a sigmoid made them, or nothing is known of what made them."""
    node = output.grad_fn
    while node is not None and node.name().startswith(RESHAPING) and node.next_functions:
        node = node.next_functions[0][0]
    return node is None or "igmoid" in node.name() or "Softmax" in node.name()


def _labels(shape: torch.Size, num_classes: int, like: torch.Tensor) -> torch.Tensor:
    return torch.randint(num_classes, shape, generator=torch.Generator().manual_seed(SEED)).to(like.device)


def _real(output: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(output) if output.is_complex() else output
