"""Special tokens that a model's code asks its configuration for, and that the default configuration does not name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gradscope.target.hf.settings import UNREADABLE, is_part, read_setting
from gradscope.target.hf.sizes import HIGHEST_ID, PLACEHOLDER_ID
from gradscope.target.hf.written import source_of_module

ASKED = re.compile(r"self\.config\.((?:\w+\.)*)(\w+_token_(?:id|index))\b")
"""A special token that a model's source reads off its own configuration, or off a part of it."""
LOWEST_GIVEN = HIGHEST_ID - 32
"""Ids from here downwards are given: those above it go to the special tokens that a configuration names."""


def name_missing_tokens(config: Any, cls: type) -> None:
    """Give ids of their own to the special tokens that a model's source reads and its configuration lacks.

    Placeholders are left out: a kind of input that the configuration has no token for is not put into a text.
    """
    asked = dict.fromkeys(ASKED.findall(source_of_module(cls.__module__)))
    named = [(owner, name) for path, name in asked if not PLACEHOLDER_ID.match(name) for owner in _at(config, path)]
    missing = [(owner, name) for owner, name in named if read_setting(owner, name) is UNREADABLE]
    for rank, (owner, name) in enumerate(missing):
        setattr(owner, name, LOWEST_GIVEN - rank)


def _at(config: Any, path: str) -> Iterator[Any]:
    """Yield the part that a path such as ``decoder.`` leads to, the configuration itself for an empty one."""
    for key in path.split(".")[:-1]:
        config = read_setting(config, key)
    if not path or is_part(config):
        yield config
