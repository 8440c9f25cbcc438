"""`-a key=1,2,3`: arguments that take several values, beside those that stay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gradscope.cli.arguments import parse_arguments, parse_value
from gradscope.errors import ConfigError


def parse_axes(words: Iterable[str]) -> tuple[Mapping[str, Sequence[Any]], Mapping[str, Any]]:
    """Split arguments into those with several values and those with one.

    A comma separates values, unless it stands in brackets, which make one value of a list.

    Examples:
        >>> parse_axes(["layers=6,12", "norm=rms,layer", "d_model=64", "betas=(0.9,0.95)"])
        ({'layers': (6, 12), 'norm': ('rms', 'layer')}, {'d_model': 64, 'betas': (0.9, 0.95)})

    Raises:
        ConfigError: A word is not key=value, or a value is missing or comes twice.
    """
    axes: dict[str, tuple[Any, ...]] = {}
    fixed: dict[str, Any] = {}
    for word in words:
        key, _, text = word.partition("=")
        if "," not in text or text.strip().startswith(("(", "[", "{", "'", '"')):
            fixed.update(parse_arguments([word]))
            continue
        (name,) = parse_arguments([f"{key}=0"])
        values = [parse_value(part) for part in text.split(",") if part.strip()]
        if len(values) < 2 or any(values.count(value) > 1 for value in values):  # noqa: PLR2004  # an axis has two ends
            raise ConfigError(f"'-a {word}' is no axis.", rule="Give different values, as -a layers=6,12,24.")
        axes[name] = tuple(values)
    twice = set(axes) & set(fixed)
    if twice:
        raise ConfigError(f"the argument '{twice.pop()}' is given twice.", rule="Give each -a key once.")
    return axes, fixed
