"""How many placeholder tokens a text must have for the picture or sound beside it, from what a failure says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gradscope.target.infer.changes import Lesson, with_size
from gradscope.target.infer.guess import Candidate
from gradscope.target.infer.roles import Hints

PLACEHOLDERS = (
    re.compile(r"tokens:? (?:tensor\()?(\d+)\D{0,20}features:? (?:tensor\()?(\d+)"),
    re.compile(r"Got (?P<features>\d+) [\w ]+ for (?P<tokens>\d+)"),
)
MOST_PLACEHOLDERS = 4096
TOO_MANY_PLACEHOLDERS = re.compile(r"[Nn]umber of elements of source < number of ones in mask")
FEWER = (2, 4, 16)
"""Divisors of the number of placeholders when there are too many, and the message does not say of how many."""


def by_placeholders(message: str, candidate: Candidate, hints: Hints) -> Iterator[Lesson]:
    """A text has as many placeholder tokens as the picture beside it has features.

    Some models count every number of a feature in their message, so that it is a width times too many.
    """
    marked = next((g for _, g in candidate if g.mark is not None), None)
    if marked is None or marked.mark is None:
        return
    old = marked.mark[1]
    if TOO_MANY_PLACEHOLDERS.search(message):
        counts = [old // by for by in FEWER if old // by]
        yield from ((rank / 10 - 1.0, _with_placeholders(candidate, count)) for rank, count in enumerate(counts))
    for pattern in PLACEHOLDERS:
        if (match := pattern.search(message)) is None:
            continue
        named = match.groupdict() or {"tokens": match[1], "features": match[2]}
        tokens, features = int(named["tokens"]), int(named["features"])
        counts = [old * features // tokens // width for width in (1, hints.width) if tokens and width]
        for rank, count in enumerate(counts):
            if 0 < count <= MOST_PLACEHOLDERS and count != old:
                yield rank / 10 - 1.0, _with_placeholders(candidate, count)


def _with_placeholders(candidate: Candidate, count: int) -> Candidate:
    """Put another number of placeholders into the text, and lengthen or shorten all that is as long as the text."""
    marked = next(g for _, g in candidate if g.mark is not None)
    old = marked.shape[1]
    new = old - (marked.mark[1] if marked.mark else 0) + count
    return tuple(
        (name, replace(with_size(g, 1, new), mark=(g.mark[0], count) if g.mark else None))
        if g.shape[1:2] == (old,)
        else (name, g)
        for name, g in candidate
    )
