"""Numbers in sentences: decades as factors, small integers as words are not needed, everything short."""

from __future__ import annotations

import math
from collections.abc import Sequence

LARGEST_PLAIN_FACTOR = 4.0
"""Decades (log10) up to which a factor is written out; 10,000 reads better than 1e4, 100,000,000 does not."""


def factor(decades: float) -> str:
    """Write 10**|decades| as a factor: 3.2, 250, 6e12."""
    size = abs(decades)
    if size < 1.0:
        return f"{10**size:.2g}"
    if size <= LARGEST_PLAIN_FACTOR:
        return f"{round(10**size, -int(size) + 1):,.0f}"
    exponent = math.floor(size)
    lead = round(10 ** (size - exponent))
    return f"1e{exponent + 1}" if lead == 10 else f"{lead}e{exponent}"  # noqa: PLR2004 - one digit before the e


def signed(value: float) -> str:
    """Write a number with its sign and two decimals."""
    return f"{value:+.2f}"


def count(number: int, noun: str) -> str:
    """Write a number of things: 1 block, 12 blocks."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """Write the first names and how many more there are."""
    shown = ", ".join(f"`{name}`" for name in names[:most])
    return shown + (f" and {len(names) - most:,} more" if len(names) > most else "")
