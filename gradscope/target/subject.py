"""What a target turns into: a model, its batches, its loss, and how each of them was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gradscope.target.importable import importable

Batch = Any
"""One batch: a tuple is passed as positional arguments, a dict as keywords, anything else as the only argument."""


@dataclass(frozen=True)
class Origin:
    """Where one ingredient of a step came from, in words the report prints.

    Attributes:
        text: One sentence, such as "batch() in model.py" or "ids = 8x9 integers below 50, inferred from the model".
        synthetic: True where gradscope made it up, so that every view can say so.
    """

    text: str
    synthetic: bool = False


@dataclass(frozen=True)
class Subject:
    """A model ready to be watched.

    Attributes:
        model: The module, in the mode (train or eval) in which its factory left it unless the user asked otherwise.
        batches: The batches to step through, used again from the start when they run out. Never empty.
        loss: ``loss(output, batch)`` to a scalar tensor.
        target: The target string the user wrote.
        inputs_origin: How the batches were found.
        loss_origin: How the loss was found.
        root: The folder user files are shown relative to.
        arguments: The ``-a`` arguments that the factory received.
        rebuild: ``rebuild(seed)`` builds the model anew from another seed, where the factory allows it.
        optimizer: ``optimizer(model)`` where the user's file offers one.
        forward: ``forward(model, batch)`` where a step is not simply ``model(*batch)``: batches that carry targets the
            model does not take, or a Lightning ``training_step``. Use ``Subject.call``, which knows.
        weights: Where the weights came from, in words; empty for those the factory left.
        notes: What the user should know about how the target was loaded, one sentence each.
        folder: The folder that has to be importable while the model runs.
    """

    model: nn.Module
    batches: Iterable[Batch]
    loss: Callable[[Any, Batch], torch.Tensor]
    target: str
    inputs_origin: Origin
    loss_origin: Origin
    root: Path = field(default_factory=Path.cwd)
    arguments: dict[str, Any] = field(default_factory=dict)
    rebuild: Callable[[int], Subject] | None = None
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None
    forward: Callable[[nn.Module, Batch], Any] | None = None
    weights: str = ""
    notes: tuple[str, ...] = ()
    folder: Path | None = None

    def call(self, batch: Batch) -> Any:
        """Run the model's forward on one batch."""
        with importable(self.folder):
            return (self.forward or call_model)(self.model, batch)


def call_model(model: nn.Module, batch: Batch) -> Any:
    """Pass a batch to a model: tuple or list positional, dict by keyword, anything else alone."""
    if isinstance(batch, dict):
        return model(**batch)
    if isinstance(batch, tuple | list):
        return model(*batch)
    return model(batch)
