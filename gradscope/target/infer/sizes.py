"""Sizes of inputs, from the numbers in the message of a failure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from gradscope.target.infer.changes import Lesson, each, with_guess, with_size
from gradscope.target.infer.guess import BATCH, TRIAL_BATCH, Candidate, Guess
from gradscope.target.infer.layers import SIDES

PACKED = re.compile(r"split_sizes=|got input of size: \[(\d+, ){3,}\d+\]|lengths?_?(tensor)? (must|should)|cu_seqlens")
"""What is said where samples that should stand in one row stand beside one another."""
VIDEO_AXES = 5
"""Axes of a batch of videos."""
COARSE = 16
"""Sides that patches and strides usually divide."""
FIRST_AXIS = "at non-singleton dimension 0"
"""What ends a message about sizes that may be numbers of samples."""
ROWS_COST = 1.0
"""Cost of changing another size where there may be too many rows or too few."""
MULTIPLES = re.compile(r"(?:divisible|multiple|divide|% ?)([^.,;]{0,40})")
"""A number of which a size must be a multiple, which may stand behind the words for it."""
LEAST_DIRECT = 0.5
"""Penalties below it are of changes that put a number in the very place of another."""
PAIRS = (  # (pattern, group of what it got, group of what it wants)
    (re.compile(r"mat1 and mat2 shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)"), 1, 2),
    (re.compile(r"to have (\d+) channels, but got (\d+) channels"), 2, 1),
    (re.compile(r"Expected (\d+), got (\d+)"), 2, 1),
    (re.compile(r"[Ee]xpected (?:\w+ ){0,4}(\d+),? but got (\d+)"), 2, 1),
    (re.compile(r"running_mean should contain (\d+) elements not (\d+)"), 1, 2),
    (re.compile(r"expecting embedding dimension of (\d+), but got (\d+)"), 2, 1),
    (re.compile(r"expected input with shape \[\*, (?:\d+, )*(\d+)\], but got input of size\[(?:\d+, )*(\d+)\]"), 2, 1),
    (re.compile(r"[Ii]nput .*?\(?(\d+)\)? doesn't match .*?\(?(\d+)\)?"), 1, 2),
    (re.compile(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)"), 1, 2),
    (re.compile(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)"), 2, 1),
    (re.compile(r"of length (\d+), but (?:found|got) (\d+)"), 2, 1),
    (re.compile(r"got (\d+)\D+expected (\d+)"), 1, 2),
    (re.compile(r"expected (\d+)\D+got (\d+)"), 2, 1),
    (re.compile(r"shape of the mask \[\d+, (\d+)\D.* indexed tensor \[\d+, (\d+)"), 1, 2),
    (re.compile(r"Sizes of tensors must match .* Expected size (\d+) but got size (\d+)"), 2, 1),
    (re.compile(r"Sizes of tensors must match .* Expected size (\d+) but got size (\d+)"), 1, 2),
    (re.compile(r"(?:length|size)\D{0,3}(\d+)\b\D{0,60}\b(?:pad|resiz|crop)\w*\D{0,40} to (\d+)"), 1, 2),
)


def by_pairs(message: str, candidate: Candidate) -> Iterator[Lesson]:
    """The message says what size it got and what size it wants."""
    for got, want in pairs_in(message):
        rows = max(got, want) // TRIAL_BATCH if message.endswith(FIRST_AXIS) and _are_rows(got, want) else 0
        yield from _with_rows(candidate, rows)
        aside = ROWS_COST if rows else 0.0
        yield from ((penalty + aside, changed) for penalty, changed in resized(candidate, got, want))


def _are_rows(got: int, want: int) -> bool:
    """Whether two sizes are those of a batch, and of several rows for each of its samples."""
    return min(got, want) == TRIAL_BATCH and max(got, want) % TRIAL_BATCH == 0


def _with_rows(candidate: Candidate, rows: int) -> Iterator[Lesson]:
    """Give an input several rows for each sample, or one that has so many just one."""
    for name, guess in candidate if rows else ():
        for old, new in ((BATCH, -rows), (-rows, BATCH)):
            if guess.shape[:1] == (old,):
                yield 0.2, with_guess(candidate, name, with_size(guess, 0, new))


def pairs_in(message: str) -> Iterator[tuple[int, int]]:
    """Yield the sizes that a message says it got, each with the one that it wants."""
    for pattern, got_group, want_group in PAIRS:
        for match in pattern.finditer(message):
            got, want = int(match[got_group]), int(match[want_group])
            if got != want and got > 0 and want > 0:
                yield got, want


def resized(candidate: Candidate, got: int, want: int) -> Iterator[Lesson]:
    """Put one size in the place of another, or change what it was computed from."""
    exact = [(name, g, axis) for name, g in candidate for axis, dim in enumerate(g.shape) if dim == got]
    if len({name for name, _, _ in exact}) > 1:
        yield 0.3, tuple((n, replace(g, shape=tuple(want if d == got else d for d in g.shape))) for n, g in candidate)
    for name, guess, axis in exact:
        if want == TRIAL_BATCH and axis == 1 and guess.kind == "ids" and len(guess.shape) == 2:  # noqa: PLR2004  # B x T
            yield 0.1, with_guess(candidate, name, replace(guess, shape=guess.shape[:1]))  # one number a sample
        yield 0.2, with_guess(candidate, name, with_size(guess, axis, want))
        if len(guess.shape) >= 4 and axis >= 2:  # noqa: PLR2004  # the sides of a picture go together
            yield (
                0.1,
                with_guess(candidate, name, replace(guess, shape=(*guess.shape[:2], *[want] * (len(guess.shape) - 2)))),
            )
        if len(guess.shape) == VIDEO_AXES and axis > 2 and guess.shape[-2:] == (got, got):  # noqa: PLR2004  # of frames
            yield 0.1, with_guess(candidate, name, replace(guess, shape=(*guess.shape[:-2], want, want)))
    yield from _shared_out(candidate, got, want)
    for name, guess in candidate:
        yield from ((0.6, with_guess(candidate, name, g)) for g in _scaled(guess, got, want))


def _shared_out(candidate: Candidate, got: int, want: int) -> Iterator[Lesson]:
    """Inputs that were put side by side have a size together: share it out among them."""
    beside = [name for name, g in candidate if g.kind in ("float", "unit") and len(g.shape) > 1]
    sizes = [dict(candidate)[name].shape[-1] for name in beside]
    if len(beside) > 1 and sum(sizes) == got and want >= len(beside):
        shares = [want // len(beside) + (rank < want % len(beside)) for rank in range(len(beside))]
        new = dict(zip(beside, shares, strict=True))
        yield 0.1, tuple((n, with_size(g, len(g.shape) - 1, new[n]) if n in new else g) for n, g in candidate)


def _scaled(guess: Guess, got: int, want: int) -> Iterator[Guess]:
    """Guesses for a size that is computed from an input's sizes: a sum, a product, a grid of patches."""
    shape = guess.shape
    if len(shape) >= 4:  # noqa: PLR2004  # pictures: features and patches grow with the area
        sides = len(shape) - 2
        for extra in (0, 1, 2, 5):  # class and register tokens beside the patches
            if got > extra and want > extra:
                side = round(shape[-1] * ((want - extra) / (got - extra)) ** (1 / sides))
                between = [s for s in SIDES if min(side, shape[-1]) < s < max(side, shape[-1])]  # borders cost some
                for near in (*between[:1], side, side - side % COARSE, side + -side % COARSE):
                    if 0 < near != shape[-1]:
                        yield replace(guess, shape=(*shape[:2], *[near] * sides))
        for axis in (1, 2) if len(shape) == VIDEO_AXES else ():  # as many frames
            if shape[axis] * want >= got:
                yield with_size(guess, axis, round(shape[axis] * want / got))
        return
    if not shape:
        return
    if (last := shape[-1] + want - got) > 0 and len(shape) > 1:
        yield with_size(guess, len(shape) - 1, last)  # concatenated with something of a fixed size
    for axis in range(1, len(shape)):
        scaled = shape[axis] * want / got
        if scaled >= 1 and scaled != shape[axis]:
            yield with_size(guess, axis, round(scaled))


def by_packing(message: str, candidate: Candidate) -> Iterator[Lesson]:
    """Beside the length of each sample, features may stand in one row, those of all samples one behind the other."""
    length = next((guess.high for _, guess in candidate if guess.kind == "lengths"), 0)
    if not length or not PACKED.search(message):
        return
    for name, guess in candidate:
        if guess.kind == "float" and len(guess.shape) == 3:  # noqa: PLR2004  # B x features x time, or time x features
            total = TRIAL_BATCH * length
            yield -0.2, with_guess(candidate, name, replace(guess, shape=(guess.shape[1], total)))
            yield -0.1, with_guess(candidate, name, replace(guess, shape=(total, guess.shape[2])))


def by_division(message: str, candidate: Candidate) -> Iterator[Lesson]:
    """A size must be a multiple of some number."""
    factors = [int(n) for match in MULTIPLES.finditer(message) for n in re.findall(r"\d+", match[1])]
    for factor in dict.fromkeys(factor for factor in factors if factor > 1):
        for axis in (1, 2, 3):
            yield from each(candidate, partial(rounded, axis=axis, factor=factor), 0.6)


def rounded(guess: Guess, axis: int, factor: int) -> Guess | None:
    """Make a size the next multiple of a number; the sides of a picture together."""
    if axis >= len(guess.shape) or guess.shape[axis] % factor == 0:
        return None
    size = math.ceil(guess.shape[axis] / factor) * factor
    if len(guess.shape) >= 4 and axis >= 2:  # noqa: PLR2004  # the sides of a picture go together
        return replace(guess, shape=(*guess.shape[:2], *[size] * (len(guess.shape) - 2)))
    return with_size(guess, axis, size)


def by_numbers(message: str, candidate: Candidate) -> Iterator[Lesson]:
    """Last resort: put every other number of the message in the place of every size it also names."""
    numbers = list(dict.fromkeys(int(n) for n in re.findall(r"(?<![\w.])\d{1,5}(?![\w.])", message)))[:8]
    sizes = {dim for _, guess in candidate for dim in guess.shape if dim}
    for got in (n for n in numbers if n in sizes):
        for want in (n for n in numbers if n not in (got, 0)):
            yield from (
                (penalty + 1.5, changed)
                for penalty, changed in resized(candidate, got, want)
                if penalty < LEAST_DIRECT
            )
    if match := re.search(r"shape '\[([-\d, ]+)\]' is invalid for input of size (\d+)", message):
        yield from _viewed([int(n) for n in match[1].split(",")], candidate)


def _viewed(wanted: list[int], candidate: Candidate) -> Iterator[Lesson]:
    """A view into a fixed shape: an input must have that many numbers per sample."""
    per_sample = math.prod(n for n in wanted[1:] if n > 0)
    for name, guess in candidate:
        if guess.kind == "float" and per_sample > 0:
            yield 0.9, with_guess(candidate, name, replace(guess, shape=(BATCH, per_sample)))
            if len(guess.shape) > 2:  # noqa: PLR2004  # pictures and sequences keep their axes
                side = round((per_sample / max(guess.shape[1], 1)) ** (1 / (len(guess.shape) - 2)))
                yield (
                    0.8,
                    with_guess(
                        candidate,
                        name,
                        replace(guess, shape=(*guess.shape[:2], *[max(side, 1)] * (len(guess.shape) - 2))),
                    ),
                )
