"""Read a configuration of transformers: its settings, its parts, and what their names stand for."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from gradscope.errors import TargetError
from gradscope.target.nearest import did_you_mean

UNREADABLE = object()
"""Stands for a setting that a configuration does not have or does not tell."""


def constructor_values(config: Any) -> dict[str, Any]:
    """Return the values of a configuration that its constructor takes."""
    names = [name for name in inspect.signature(type(config)).parameters if name not in ("kwargs", "args")]
    return {name: value for name in names if (value := read_setting(config, name)) is not UNREADABLE}


def read_setting(config: Any, name: str) -> Any:
    """Return a setting, or UNREADABLE; a configuration refuses to tell one that differs from layer to layer."""
    try:
        return getattr(config, name, UNREADABLE)
    except RuntimeError:
        return UNREADABLE


def is_part(value: Any) -> bool:
    """Whether the value of a setting is a configuration itself."""
    return hasattr(value, "to_dict") and hasattr(value, "model_type")


def parts_of(config: Any) -> dict[str, Any]:
    """Return the configurations inside a composite one."""
    return {name: value for name, value in vars(config).items() if is_part(value)}


def all_parts(config: Any) -> Iterator[Any]:
    """Yield a configuration and the parts of it, whatever they are parts of."""
    yield from (part for _, part in named_parts(config))


def named_parts(config: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a configuration and the parts of it, each behind what leads to it, such as ``vision_config.``."""
    yield path, config
    for key, part in parts_of(config).items():
        yield from named_parts(part, f"{path}{key}.")


def attribute_name(cls: Any, key: str) -> str:
    """Return the name under which a configuration keeps a common setting (GPT-2's n_layer for num_hidden_layers)."""
    return str(getattr(cls, "attribute_map", {}).get(key, key))


def refuse_unknown(config: Any, given: Mapping[str, Any]) -> None:
    """Raise for a setting that a configuration does not have, naming the nearest.

    Raises:
        TargetError: If there is one.
    """
    known = [*constructor_values(config), *getattr(type(config), "attribute_map", {}), "num_labels"]
    for key, part in parts_of(config).items():
        known += [f"{key}.{name}" for name in constructor_values(part)]
    for key in given:
        if key not in known:
            raise TargetError(f"A {config.model_type} configuration has no {key!r}.", rule=did_you_mean(key, known))


def default_of(config_class: Any) -> Any:
    """Return a configuration as its class makes it; nothing where it needs to be told more."""
    try:
        return config_class()
    except Exception:  # each refuses in its own way
        return _Empty()


class _Empty:
    """A configuration without parts."""
