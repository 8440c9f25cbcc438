"""`-a key=value`: literals for the factory that builds the model."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from gradscope.errors import ConfigError

_WORDS: dict[str, Any] = {"true": True, "false": False, "none": None, "null": None}


def parse_arguments(words: Iterable[str]) -> dict[str, Any]:
    """Parse `key=value` words; the value is a Python literal, a word such as true, or else text.

    Examples:
        >>> parse_arguments(["layers=12", "shortcut=false", "norm=rms", "betas=(0.9,0.95)", "encoder.width=8"])
        {'layers': 12, 'shortcut': False, 'norm': 'rms', 'betas': (0.9, 0.95), 'encoder.width': 8}

    Raises:
        ConfigError: A word has no `=`, or its key is not a name, or comes twice.
    """
    parsed: dict[str, Any] = {}
    for word in words:
        key, sign, value = word.partition("=")
        key = key.strip().replace("-", "_")
        if not sign or not all(part.isidentifier() for part in key.split(".")):
            raise ConfigError(f"'-a {word}' is not understood.", rule="Arguments are key=value.", hint="-a layers=12")
        if key in parsed:
            raise ConfigError(f"the argument '{key}' is given twice.", rule="Give each -a key once.")
        parsed[key] = parse_value(value)
    return parsed


def parse_value(text: str) -> Any:
    """Turn the text after `=` into a value."""
    word = text.strip()
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
