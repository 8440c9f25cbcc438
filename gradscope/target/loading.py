"""TARGET string to Subject: open, build, load weights, find inputs, find the loss."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gradscope.probe.seeding import seed_everything
from gradscope.target.importable import with_folder
from gradscope.target.options import Mode, Options
from gradscope.target.source import Built, Source
from gradscope.target.sources import open_source
from gradscope.target.spec import parse
from gradscope.target.step import Step
from gradscope.target.subject import Subject
from gradscope.target.weights.fit import load_weights

OPTIMIZER_NAMES = ("optimizer", "make_optimizer", "get_optimizer", "build_optimizer", "create_optimizer")


def load(
    target: str,
    *,
    arguments: Mapping[str, Any] | None = None,
    inputs: str | None = None,
    loss: str | None = None,
    input_spec: str | None = None,
    weights: str | None = None,
    seed: int | None = 0,
    mode: Mode = "keep",
    allow_synthetic: bool = True,
) -> Subject:
    """Turn a target string into a model with batches and a loss.

    Args:
        target: file.py, file.py:attr, pkg.mod:attr, file.pt2, builtin:NAME, hf:DIR_OR_TYPE, timm:NAME,
            torchvision:NAME or hub:DIR:entry.
        arguments: Passed to what builds the model.
        inputs: ``file:function`` or a file of tensors.
        loss: ``file:function`` or ``file:criterion``.
        input_spec: Inputs written out, such as ``8x128:int64:0..50257``.
        weights: A checkpoint to load into the model.
        seed: Set before the model is built; None leaves the generators alone. Who runs the first forward sets it again.
        mode: keep the mode the factory left, or train / eval.
        allow_synthetic: Whether inputs and a loss may be made up where none are offered.

    Raises:
        GradscopeError: One clear line for whatever stands in the way.
    """
    options = Options(dict(arguments or {}), inputs, loss, input_spec, weights, mode, allow_synthetic)
    source = open_source(parse(target), options.arguments, seed)
    return _subject(target, source, options, seed)


def _subject(target: str, source: Source, options: Options, seed: int | None) -> Subject:
    """Build, and gather everything a step needs."""
    built, weights, notes = _ready_model(source, options, seed)
    step = Step(source, built, options)
    found, (forward, found_loss) = step.inputs, step.forward_and_loss()
    return Subject(
        model=built.model,
        batches=found.batches,
        loss=with_folder(found_loss.loss, source.folder),
        target=target,
        inputs_origin=found.origin,
        loss_origin=found_loss.origin,
        root=source.root,
        arguments=options.arguments,
        rebuild=_rebuilder(target, options) if source.rebuilds else None,
        optimizer=built.optimizer or _optimizer_in(source),
        forward=forward,
        weights=weights,
        notes=(*source.notes, *built.notes, *notes, *step.notes),
        folder=source.folder,
    )


def _ready_model(source: Source, options: Options, seed: int | None) -> tuple[Built, str, tuple[str, ...]]:
    """Build the model from the seed, load its weights, set its mode."""
    seed_everything(seed)
    built = source.build()
    own_seed = seed is not None and source.rebuilds and torch.initial_seed() != seed
    notes = (
        (f"{source.label} seeds itself: building it again from another seed gives the same weights.",)
        if own_seed
        else ()
    )
    weights = ""
    if options.weights:
        fitted = load_weights(built.model, Path(options.weights))
        weights, notes = fitted.text, (*notes, *fitted.notes)
    if options.mode != "keep":
        built.model.train(options.mode == "train")
    return built, weights, notes


def _rebuilder(target: str, options: Options) -> Callable[[int], Subject]:
    """Return ``rebuild(seed)``: the same target, loaded anew from another seed."""

    def rebuild(seed: int) -> Subject:
        return _subject(target, open_source(parse(target), options.arguments, seed), options, seed)

    return rebuild


def _optimizer_in(source: Source) -> Callable[[nn.Module], torch.optim.Optimizer] | None:
    """Return the function of the user's file that makes an optimizer for a model, if there is one."""
    return next((source.namespace[n] for n in OPTIMIZER_NAMES if inspect.isfunction(source.namespace.get(n))), None)
