"""Parts of composite models: which of them a configuration belongs to, and which can be run alone."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

from torch import nn

from gradscope.target.hf.heads import can_run
from gradscope.target.hf.settings import default_of, parts_of

DEEPEST = 3
"""Levels of names below a composite at which its parts are looked for."""


def owners_of(config_class: type) -> Iterator[tuple[Any, str]]:
    """Yield the configurations beside one that have it as a part, and under which name."""
    beside: list[Any] = list(vars(sys.modules[config_class.__module__]).values())
    for other in beside:
        if not isinstance(other, type) or other is config_class or not hasattr(other, "model_type"):
            continue
        named = [key for key, value in getattr(other, "sub_configs", {}).items() if value is config_class]
        named = named or [key for key, part in parts_of(default_of(other)).items() if isinstance(part, config_class)]
        yield from ((other, key) for key in named)


def made_from(model: nn.Module, config_class: type) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules inside a model that were made from a part of its configuration, the outermost first.

    Such a module keeps that part, or is called after it: ``VisionConfig`` and ``VisionTransformer``.
    """
    stem = config_class.__name__.removesuffix("Config")
    for name, module in model.named_modules():
        keeps = isinstance(getattr(module, "config", None), config_class)
        if name and can_run(type(module)) and (keeps or type(module).__name__.startswith(stem)):
            yield name, module


def running_alone(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the parts of a composite that are models, with a configuration of their own; else the largest that run.

    Those that take a text come first: the others feed it.
    """
    named = [(n, m) for n, m in model.named_modules() if n and n.count(".") < DEEPEST and can_run(type(m))]
    whole = getattr(model, "config", None)
    models = [(n, m) for n, m in named if hasattr(c := getattr(m, "config", None), "model_type") and c is not whole]
    blocks = [(n, m) for n, m in named if "." not in n and next(m.children(), None) is not None]

    def rank(entry: tuple[str, nn.Module]) -> tuple[bool, bool, int]:
        takes_text = "input_ids" in inspect.signature(entry[1].forward).parameters
        size = 0 if takes_text else sum(parameter.numel() for parameter in entry[1].parameters())
        return not takes_text, type(entry[1]).__module__ != type(model).__module__, -size

    yield from sorted(models or blocks, key=rank)
