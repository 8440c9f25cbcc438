"""How many axes an input must have, from the message of a failure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from gradscope.target.infer.changes import Lesson, each
from gradscope.target.infer.guess import BATCH, Candidate, Guess
from gradscope.target.infer.layers import SIDES
from gradscope.target.infer.roles import Hints

NDIMS = (  # patterns whose group is the number of axes wanted
    re.compile(r"[Ee]xpected (\d)D"),
    re.compile(r"expected (\d), got \d\)"),
    re.compile(r"or (\d)D \(batched\)"),
    re.compile(r"or (\d)D input"),
    re.compile(r"(\d)-D"),
    re.compile(r"len\(dims\) = (\d)"),
    re.compile(r"batched (\d)D"),
    re.compile(r"input has to be a (\d)D Tensor"),
)
OF_ONE_FORM = ("lengths", "rows", "edges", "groups", "starts", "patches")
"""Kinds of input whose number of axes has a meaning."""
OFF_BY = re.compile(r"got input of size: \[(?P<size>[\d, ]+)\]|input\.dim\(\) = (?P<dim>\d)")
"""How many axes a layer was given, which need not be those of an input."""


def by_axes(message: str, candidate: Candidate, hints: Hints) -> Iterator[Lesson]:
    """The message says how many axes it wants."""
    wanted = {int(m[1]) for pattern in NDIMS for m in pattern.finditer(message)}
    if match := re.search(
        r"Dimension out of range \(expected to be in range of \[-\d+, (\d+)\], but got (-?\d+)\)", message
    ):
        index = int(match[2])
        wanted.add(index + 1 if index >= 0 else -index)
    if "if input is 2D, then offsets has to be None" in message:
        wanted.add(1)
    if match := re.search(r"too many indices for tensor of dimension (\d)", message):
        wanted.add(int(match[1]) + 1)
    if match := re.search(r"too many values to unpack \(expected (\d)\)", message):
        wanted.add(int(match[1]))
    if "list index out of range" in message or "tuple index out of range" in message or "not enough values" in message:
        wanted |= {len(g.shape) + 1 for _, g in candidate if g.shape}
    for ndim in sorted(wanted):
        yield from each(candidate, partial(with_axes, ndim=ndim, hints=hints), 0.8)
        yield from each(candidate, partial(_channels_last, ndim=ndim, hints=hints), 0.9)
    if match := OFF_BY.search(message):
        got = match["size"].count(",") + 1 if match["size"] else int(match["dim"])
        for ndim in wanted:
            yield from each(candidate, partial(_with_fewer, fewer=got - ndim, hints=hints), 0.5)


def _channels_last(guess: Guess, ndim: int, hints: Hints) -> Guess | None:
    """Make a picture of vectors: the width that an input has stays its last axis."""
    if ndim != 4 or guess.kind != "float" or not 1 < len(guess.shape) < ndim:  # noqa: PLR2004  # a batch of pictures
        return None
    side = hints.side or SIDES[0]
    return replace(guess, shape=(BATCH, side, side, guess.shape[-1]))


def _with_fewer(guess: Guess, fewer: int, hints: Hints) -> Guess | None:
    """Take off, or add, as many axes as something made of an input has too many or too few."""
    if fewer == 1 and guess.kind == "float" and len(guess.shape) == 4:  # noqa: PLR2004  # a picture without channels
        return replace(guess, shape=(guess.shape[0], *guess.shape[2:]))
    return with_axes(guess, len(guess.shape) - fewer, hints) if fewer and guess.shape else None


def with_axes(guess: Guess, ndim: int, hints: Hints) -> Guess | None:
    """Return an input of another number of axes; None where it cannot have so many, or has them."""
    shape = guess.shape
    if guess.kind == "patches" and len(shape) == ndim:  # those of each sample in a row of their own
        return replace(guess, kind="float")
    if guess.kind in OF_ONE_FORM or not shape or len(shape) == ndim or not 1 <= ndim <= 6:  # noqa: PLR2004  # nothing usual has more axes
        return None
    if ndim == 4 and guess.kind == "float":  # noqa: PLR2004  # a picture
        side = hints.side or SIDES[0]
        return replace(guess, shape=(BATCH, hints.channels or 3, side, side))
    if len(shape) > ndim:
        return replace(guess, shape=(*shape[: ndim - 1], shape[-1]) if ndim > 1 else (BATCH,))
    return replace(guess, shape=(shape[0], *[hints.tokens] * (ndim - len(shape)), *shape[1:]))
