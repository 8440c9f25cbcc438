"""Inputs that hold others: dicts, tuples, named tuples, data classes and other objects, and what is read from them."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from typing import Any

from torch import nn

from gradscope.target.infer.guess import Guess
from gradscope.target.infer.loops import record_keys
from gradscope.target.infer.reading import attributes_of, keys_of, unpacked_into

Part = tuple[str, str, tuple[str, ...]]
"""A part's name, its annotation, and how forward writes it, such as ``batch['image']``."""


def opened(model: nn.Module, parameter: inspect.Parameter) -> tuple[Guess | None, list[Part]]:
    """Return the shell of an input that holds others, and its parts; None where nothing says that it does."""
    name = parameter.name
    if fields := _fields(cls := _class_of(model, parameter)):
        return Guess("object", value=cls), [(key, words, (f"{name}.{key}",)) for key, words in fields.items()]
    if keys := keys_of(model, name):
        return Guess("dict"), [(key, "", (f"{name}[{key!r}]", f"{name}.get({key!r})")) for key in keys]
    if records := record_keys(model, name):
        return Guess("records"), [(key, "", (written,)) for key, written in records]
    if keys := attributes_of(model, name):
        return Guess("object"), [(key, "", (f"{name}.{key}",)) for key in keys]
    if keys := unpacked_into(model, name):
        return Guess("tuple"), [(key, "", ()) for key in keys]
    return None, []


def _class_of(model: nn.Module, parameter: inspect.Parameter) -> Any:
    """Return the class that an input is annotated with, where it can be told."""
    try:
        return typing.get_type_hints(type(model).forward).get(parameter.name)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return parameter.annotation  # an annotation that cannot be evaluated says nothing


def _fields(cls: Any) -> dict[str, str]:
    """Return the fields of a named tuple, a data class or a typed dict that must be given, with their annotations."""
    if not isinstance(cls, type):
        return {}
    if dataclasses.is_dataclass(cls):
        kept = [f for f in dataclasses.fields(cls) if f.default is f.default_factory is dataclasses.MISSING]
        return {field.name: _words(field.type) for field in kept}
    if hasattr(cls, "_field_defaults") or typing.is_typeddict(cls):
        optional = getattr(cls, "_field_defaults", {})
        return {name: _words(kind) for name, kind in cls.__annotations__.items() if name not in optional}
    return {}


def _words(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
