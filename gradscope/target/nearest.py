"""Did you mean: the names closest to the one the user wrote."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST_NAMES = 8
"""How many names an error lists before it says how many more there are."""


def nearest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return the known names closest to `name`, best first."""
    by_lower = {k.lower(): k for k in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=most, cutoff=0.5)
    return [by_lower[f] for f in found]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "Did you mean a, b?", or the list of what there is, or an empty string where there is nothing."""
    known = list(known)
    if found := nearest(name, known):
        return f"Did you mean {', '.join(found)}?"
    return f"There is {shortened(known)}." if known else ""


def shortened(names: Iterable[str], most: int = MOST_NAMES) -> str:
    """Join names with commas, folding what is beyond `most`."""
    names = list(names)
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
