"""Inputs that the user's file or model offers under the usual names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import nn
from torch.utils.data import DataLoader

from gradscope.errors import InputsError
from gradscope.target.inputs.arrange import unwrapped
from gradscope.target.inputs.batches import Batches
from gradscope.target.sandbox import user_code
from gradscope.target.source import Offer
from gradscope.target.subject import Origin

FILE_NAMES = (
    "batch",
    "get_batch",
    "make_batch",
    "example_inputs",
    "get_example_inputs",
    "example_input_array",
    "example_input",
    "dummy_inputs",
    "dummy_input",
    "sample_inputs",
    "get_inputs",
    "inputs",
    "example_batch",
    "sample_batch",
    "dummy_batch",
)
MODEL_NAMES = (
    "example_input_array",
    "example_inputs",
    "dummy_inputs",
    "example_input",
    "get_example_inputs",
    "dummy_input",
)
LOADER_NAMES = ("train_dataloader", "get_dataloader", "get_train_loader", "get_loader", "make_loader", "train_loader")
SPLIT_NAMES = ("split", "mode", "which", "phase", "subset")
BATCH_SIZE_NAMES = ("batch_size", "bs", "n", "num_samples")
BATCH_SIZE = 8
"""Samples asked for where a function takes their number."""


def in_namespace(namespace: Mapping[str, Any], where: str, folder: Path | None) -> Offer | None:
    """Return the batches a file offers under the usual names, or as a DataLoader, if it does."""
    for name in FILE_NAMES:
        if name in namespace and (offer := _offer(namespace[name], name, where, folder)):
            return offer
    for name, value in namespace.items():
        if isinstance(value, DataLoader):
            return Offer(Batches(value), Origin(f"{name} in {where}"))
    for name in LOADER_NAMES:
        if inspect.isfunction(namespace.get(name)) and (offer := _offer(namespace[name], name, where, folder)):
            return offer
    return None


def on_model(model: nn.Module, where: str, folder: Path | None) -> Offer | None:
    """Return the batches a model offers as its own attributes, if it does."""
    own = unwrapped(model)
    for name in MODEL_NAMES:
        if _is_inherited(type(own), name):
            continue
        with user_code(f"Reading {name} of the model", folder, InputsError):
            value = getattr(own, name, None)
        if (
            value is not None
            and not isinstance(value, nn.Module)
            and (offer := _offer(value, name, "the model", folder))
        ):
            return offer
    loader = getattr(type(own), "train_dataloader", None)  # a LightningModule's own, not the empty one it inherits
    if loader is not None and not loader.__module__.startswith(("lightning", "pytorch_lightning")):
        return _offer(own.train_dataloader, "train_dataloader", "the model", folder)
    return None


def _is_inherited(cls: type, name: str) -> bool:
    """Whether an attribute is the one that a library gives to all its models, whatever they take."""
    owner = next((base for base in cls.__mro__ if name in vars(base)), None)
    return owner is not None and owner.__module__.startswith(
        ("transformers.", "diffusers.", "lightning.", "pytorch_lightning.")
    )


def call_without_help(function: Callable[..., Any]) -> Callable[[], Any] | None:
    """Return a call of a batch function, with the split and batch size that some want; None if it needs more."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    arguments: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            continue
        if parameter.name in SPLIT_NAMES:
            arguments[parameter.name] = "train"
        elif parameter.name in BATCH_SIZE_NAMES:
            arguments[parameter.name] = BATCH_SIZE
        else:
            return None
    return lambda: function(**arguments)


def batches_of(value: Any, name: str, where: str, folder: Path | None) -> Batches | None:
    """Turn a batch, a loader, or a function that makes either, into batches; None where it is neither."""
    if not callable(value) or isinstance(value, DataLoader):
        return None if value is None or isinstance(value, type | str) else Batches(value)
    call = call_without_help(value)
    if call is None:
        return None

    def make() -> Any:
        with user_code(f"Calling {name}() in {where}", folder, InputsError):
            return call()

    result = make()
    if result is None:
        raise InputsError(
            f"{name}() in {where} returned None.", rule="It should return a batch or an iterator of batches."
        )
    return Batches(result, make if isinstance(result, Iterator) else None)


def _offer(value: Any, name: str, where: str, folder: Path | None) -> Offer | None:
    batches = batches_of(value, name, where, folder)
    called = "()" if callable(value) and not isinstance(value, DataLoader) else ""
    return (
        Offer(batches, Origin(f"{name}{called} in {where}" if where != "the model" else f"{name}{called} of the model"))
        if batches
        else None
    )
