"""Special tokens that a model's code asks its configuration for, and that the default configuration does not name."""

from __future__ import annotations

import re
from typing import Any

from gradscope.target.hf.settings import UNREADABLE, read_setting
from gradscope.target.hf.sizes import HIGHEST_ID, PLACEHOLDER_ID
from gradscope.target.hf.written import source_of_module

ASKED = re.compile(r"self\.config\.(\w+_token_(?:id|index))\b")
"""A special token that a model's source reads off its own configuration."""
LOWEST_GIVEN = HIGHEST_ID - 32
"""Ids from here downwards are given: those above it go to the special tokens that a configuration names."""


def name_missing_tokens(config: Any, cls: type) -> None:
    """Give ids of their own to the special tokens that a model's source reads and its configuration lacks.

    Placeholders are left out: a kind of input that the configuration has no token for is not put into a text.
    """
    asked = dict.fromkeys(ASKED.findall(source_of_module(cls.__module__)))
    names = [name for name in asked if not PLACEHOLDER_ID.match(name) and read_setting(config, name) is UNREADABLE]
    for rank, name in enumerate(names):
        setattr(config, name, LOWEST_GIVEN - rank)
