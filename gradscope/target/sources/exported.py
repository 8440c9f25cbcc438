"""file.pt2, a program that torch.export saved, with its example inputs."""

from __future__ import annotations

import contextlib
import logging
import pickle
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gradscope.errors import TargetError
from gradscope.target.infer.trial import Forward
from gradscope.target.inputs.batches import Batches
from gradscope.target.nearest import did_you_mean
from gradscope.target.source import Built, Offer, Source
from gradscope.target.spec import Spec
from gradscope.target.subject import Batch, Origin


def open_source(spec: Spec, arguments: Mapping[str, Any], seed: int | None) -> Source:
    """Open an exported program and give its modules their names back."""
    path = Path(spec.place)
    if not path.exists():
        there = [p.name for p in path.parent.glob("*.pt2")] if path.parent.is_dir() else []
        raise TargetError(f"There is no file {spec.place!r}.", rule=did_you_mean(path.name, there) if there else "")
    if arguments:
        raise TargetError(
            f"{path.name} is built already, so -a cannot reach it.", rule="Export it anew with other arguments."
        )
    program = _load(path)

    def build() -> Built:
        with _in_silence():
            model = torch.export.unflatten(program)
        note = "An exported program keeps the mode and the control flow it was exported with."
        if program.example_inputs is None:
            return Built(model, notes=(note,))
        positional, keywords = program.example_inputs
        batch, forward = _as_batch(positional, keywords)
        return Built(
            model, Offer(Batches(batch), Origin(f"example inputs in {path.name}")), forward=forward, notes=(note,)
        )

    return Source(path.name, build, rebuilds=False)


def _load(path: Path) -> torch.export.ExportedProgram:
    try:
        with _tensors_only(), _in_silence():
            return torch.export.load(path)
    except pickle.UnpicklingError as error:
        raise TargetError(
            f"{path.name} wants to run code.", rule="Only tensors and plain containers are loaded."
        ) from error
    except (RuntimeError, OSError, ValueError, KeyError, AttributeError, zipfile.BadZipFile, AssertionError) as error:
        raise TargetError(
            f"{path.name} is damaged, or not a program that torch.export saved ({path.stat().st_size:,} bytes).",
            rule="Its contents cannot be read.",
            hint="torch.export.save(torch.export.export(model.eval(), inputs), 'model.pt2') writes one",
        ) from error


@contextlib.contextmanager
def _in_silence() -> Iterator[None]:
    """Keep back what torch.export logs and warns of on its way: it says in tracebacks what an error says once."""
    logger = logging.getLogger("torch.export")
    disabled, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.disabled = disabled


@contextlib.contextmanager
def _tensors_only() -> Iterator[None]:
    """Keep torch.export from falling back to pickles that run code, which it does for example inputs."""
    original = torch.load

    def load(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **{**kwargs, "weights_only": True})

    torch.load = load
    try:
        yield
    finally:
        torch.load = original


def _as_batch(positional: tuple[Any, ...], keywords: Mapping[str, Any]) -> tuple[Batch, Forward | None]:
    """Return the example inputs as a batch, with how it reaches the program where it is of both kinds.

    A program takes its inputs only in the way in which it was exported.
    """
    if not keywords:
        return tuple(positional), None
    if not positional:
        return dict(keywords), None
    names = [f"argument {i}" for i in range(len(positional))]

    def forward(model: nn.Module, batch: Batch) -> Any:
        return model(*(batch[name] for name in names), **{key: batch[key] for key in keywords})

    return {**dict(zip(names, positional, strict=True)), **keywords}, forward
