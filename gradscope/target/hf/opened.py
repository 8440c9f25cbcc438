"""Sizes that a configuration leaves open and whose names say nothing: small ones alike, then what it requires of them.

One that is divided by another, such as the tokens that a budget holds by those of a block, is a multiple of it where
both are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from gradscope.target.hf.agree import MOST_REPAIRS
from gradscope.target.hf.settings import all_parts, constructor_values, read_setting
from gradscope.target.hf.told import annotation_of

FEW = 4
"""A size whose name does not say what it is of."""
WHOLE_NUMBER = re.compile(r"\bint\b")
"""How a size is annotated."""
REQUIRED = re.compile(r"\brequires? `?(\w+)`? ?==? ?(\d+)")
"""What a configuration says of a setting that has one value only."""


def opened(missing: Iterable[tuple[Any, str]]) -> bool:
    """Give one small size to all settings that are missing and are said to be whole numbers; False where none is."""
    sizes = [(owner, name) for owner, name in missing if WHOLE_NUMBER.search(annotation_of(owner, name))]
    for owner, name in sizes:
        setattr(owner, name, FEW)
    return bool(sizes)


def obey(config: Any) -> None:
    """Set what a configuration, and each part of it, says that it requires when it is made from its settings."""
    for owner in all_parts(config):
        for _ in range(MOST_REPAIRS):
            if not any(_set(owner, name, int(value)) for name, value in REQUIRED.findall(_refusal(owner))):
                break


def _set(owner: Any, name: str, value: int) -> bool:
    if read_setting(owner, name) == value or name not in constructor_values(owner):
        return False
    setattr(owner, name, value)
    return True


def _refusal(owner: Any) -> str:
    """Return what a configuration says against its settings; nothing where it takes them."""
    try:
        type(owner)(**constructor_values(owner))
    except Exception as error:  # each validates in its own way
        return str(error)
    return ""
