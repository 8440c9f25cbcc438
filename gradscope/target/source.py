"""What the different kinds of target have in common once they are opened: something that builds a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from gradscope.target.infer.trial import Outcome
from gradscope.target.subject import Batch, Origin


@dataclass(frozen=True)
class Offer:
    """Something found for a step, and where it was found.

    Attributes:
        value: Batches for inputs, a callable for a loss.
        origin: In words, for the report.
    """

    value: Any
    origin: Origin


@dataclass(frozen=True)
class Built:
    """What one call of a factory gave.

    Attributes:
        model: The module.
        inputs: The batches the factory returned with it, if any.
        loss: The loss the factory returned with it, if any.
        optimizer: A function from the model to its optimizer, if any.
        forward: How a batch reaches the model, where that is not the usual way.
        notes: What the user should know, one sentence each.
        outcome: One forward of a copy on those inputs, where building included trying them.
    """

    model: nn.Module
    inputs: Offer | None = None
    loss: Offer | None = None
    optimizer: Callable[[nn.Module], Any] | None = None
    forward: Callable[[nn.Module, Batch], Any] | None = None
    notes: tuple[str, ...] = ()
    outcome: Outcome | None = None


Trial = Callable[[Batch], Outcome | None]
"""Runs one forward of a scratch copy; None where there can be none."""
LibraryInputs = Callable[[nn.Module, Trial], "tuple[Offer, Outcome | None] | None"]


@dataclass(frozen=True)
class Source:
    """An opened target.

    Attributes:
        label: What builds the model, in words: "build_model() in model.py".
        build: Builds it; the caller has set the seed.
        namespace: The names of the user's file, for inputs and losses it offers.
        where: The file or library those names are from, as a report says it.
        folder: Must be on sys.path when the user's functions run.
        library_inputs: Finds one batch by what the library knows, given the model and a way to try a batch.
        root: The folder user files are shown relative to.
        rebuilds: Whether building again makes a new model rather than returning the same one.
        notes: What the user should know, one sentence each.
    """

    label: str
    build: Callable[[], Built]
    namespace: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""
    folder: Path | None = None
    library_inputs: LibraryInputs | None = None
    root: Path = field(default_factory=Path.cwd)
    rebuilds: bool = True
    notes: tuple[str, ...] = ()
