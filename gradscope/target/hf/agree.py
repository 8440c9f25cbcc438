"""The settings that a configuration names where it refuses to be what it was made."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from gradscope.target.hf.settings import UNREADABLE, constructor_values, default_of, parts_of, read_setting

NAMED = re.compile(r"[A-Za-z_]\w*(?:\.\w+)?")
"""A setting that a message may name, perhaps with the part that has it."""


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


def default_part(cls: Any, key: str, kind: Callable[[], Any]) -> Any:
    """Return a part as a composite makes it by default; `kind` is its class where nothing more is told."""
    told = getattr(cls, "sub_configs_defaults", {}).get(key)
    if (name := getattr(told, "model_type", None)) is None:
        return kind()
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return CONFIG_MAPPING[name](**(getattr(told, "init_kwargs", None) or {}))
