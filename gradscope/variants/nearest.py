"""Names a user wrote, matched against those there are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def canonical(name: str) -> str:
    """Spell a name the one way the catalogue does: lower case, hyphens."""
    return name.strip().lower().replace("_", "-")


def nearest(written: str, known: Iterable[str]) -> str | None:
    """Return the known name most like what was written, or None when none is.

    >>> nearest("postln", ["pre-ln", "post-ln"])
    'post-ln'
    """
    by_letters = {name.replace("-", "").replace("_", "").lower(): name for name in known}
    letters = written.replace("-", "").replace("_", "").lower()
    found = difflib.get_close_matches(letters, by_letters, n=1, cutoff=0.5)
    return by_letters[found[0]] if found else None
