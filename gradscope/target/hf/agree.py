"""Make the settings of a configuration agree, by what it says where it refuses to be made from them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from gradscope.target.hf.settings import UNREADABLE, constructor_values, default_of, parts_of, read_setting

NAMED = re.compile(r"[A-Za-z_]\w*(?:\.\w+)?")
"""A setting that a message may name, perhaps with the part that has it."""
TIED = re.compile(r"`?(\w+)`?(?: \(\S+\))? must (?:equal|match|be equal to|be the same as) `?(\w+)`?")
ALIKE = re.compile(r"config\.(?:(\w+)\.)?(\w+)=(\d+)`? should (?:match|equal) `?config\.(\w+)=(\d+)")
FIXED = re.compile(r"`?(\w+)`? must be (\d+),? (?:but )?got")
"""What a configuration says of a setting that another one, or the architecture, decides."""
MOST_REPAIRS = 6
"""Settings that are mended, one after the other, before a configuration is given up."""


def configured(cls: Callable[..., Any], settings: dict[str, Any]) -> Any:
    """Return a configuration with some settings, those made to agree that it says must.

    Raises:
        Exception: What the configuration raised, where it does not say what must agree.
    """
    for _ in range(MOST_REPAIRS):
        try:
            return cls(**settings)
        except Exception as error:  # each validates in its own way
            agreed = _agreed(str(error), cls, settings)
            mended = {key: part for name, value in agreed for key, part in _set(cls, settings, name, value)}
            mended = mended or dict(given_back(cls, str(error), settings))
            if not mended:
                raise
            settings = {**settings, **mended}
    return cls(**settings)


def _set(cls: Any, settings: dict[str, Any], name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what sets a setting that is not set so yet, of a configuration or of the part of it that has it."""
    if name in inspect.signature(cls).parameters:
        if settings.get(name) != value:
            yield name, value
        return
    for key, kind in getattr(cls, "sub_configs", {}).items():
        told: Any = settings.get(key)
        old = told if hasattr(told, "to_dict") else _default_part(cls, key, kind)
        if name in constructor_values(old) and getattr(old, name) != value:
            yield key, type(old)(**{**constructor_values(old), name: value})


def _agreed(message: str, cls: Callable[..., Any], settings: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield settings that a message says must be something, and what."""
    for match in ALIKE.finditer(message):
        yield match[4], min(int(match[3]), int(match[5]))  # what was made small is right
    for match in FIXED.finditer(message):
        yield match[1], int(match[2])
    for match in TIED.finditer(message):
        other = settings.get(match[2], getattr(cls, match[2], None))
        if isinstance(other, int):
            yield match[1], other


def given_back(cls: Any, message: str, settings: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the changed settings that a refusal names, as they are by default.

    They hang together with something that was not changed: a range of tokens ends within the vocabulary.
    """
    default = default_of(cls)
    for word in dict.fromkeys(NAMED.findall(message)):
        part, _, name = word.rpartition(".")
        for key, old in parts_of(default).items():
            new: Any = settings.get(key)
            if part in ("", key) and type(new) is type(old) and name in constructor_values(new):
                value = read_setting(old, name)
                if _differs(value, read_setting(new, name)):
                    yield key, type(new)(**{**constructor_values(new), name: value})
        if not part and name in settings and not hasattr(settings[name], "to_dict"):
            value = read_setting(default, name)
            if value is not UNREADABLE and _differs(value, settings[name]):
                yield name, value


def _differs(one: Any, other: Any) -> bool:
    return type(one) is not type(other) or bool(one != other)


def _default_part(cls: Any, key: str, kind: Callable[[], Any]) -> Any:
    """Return a part as a composite makes it by default; `kind` is its class where nothing more is told."""
    told = getattr(cls, "sub_configs_defaults", {}).get(key)
    if (name := getattr(told, "model_type", None)) is None:
        return kind()
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return CONFIG_MAPPING[name](**(getattr(told, "init_kwargs", None) or {}))
