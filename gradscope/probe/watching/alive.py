"""Objects of a program that is not ours, found by their kind: its optimizers, its modules."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TypeVar

import torch
from torch import nn

_T = TypeVar("_T")


def alive(kind: type[_T]) -> list[_T]:
    """Return all objects of a kind that the garbage collector knows."""
    # By type, not isinstance: asking a lazy proxy for its class would make it load what it stands for.
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]


def optimizers_of(module: nn.Module) -> Iterator[torch.optim.Optimizer]:
    """Yield the optimizers that hold any parameter of a module."""
    parameters = parameter_ids(module)
    for optimizer in alive(torch.optim.Optimizer):
        if parameters & held_by(optimizer):
            yield optimizer


def held_by(optimizer: torch.optim.Optimizer) -> set[int]:
    """Return the ids of the parameters that an optimizer holds."""
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def parameter_ids(module: nn.Module) -> set[int]:
    """Return the ids of a module's parameters."""
    return {id(parameter) for parameter in module.parameters()}
