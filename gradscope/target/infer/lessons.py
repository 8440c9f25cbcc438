"""What a failed trial teaches: the next guesses, from the failing layer and from the numbers in its message."""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from gradscope.target.infer.guess import BATCH, Candidate, Guess
from gradscope.target.infer.layers import SIDES, TOKENS, wanted_by
from gradscope.target.infer.roles import MASK, Hints, usual
from gradscope.target.infer.trial import Outcome

PLACEHOLDERS = (
    re.compile(r"tokens:? (?:tensor\()?(\d+)\D{0,20}features:? (?:tensor\()?(\d+)"),
    re.compile(r"Got (?P<features>\d+) [\w ]+ for (?P<tokens>\d+)"),
)
MOST_GUESSES = 4
"""Ways to fill an input that was left out."""
MOST_PLACEHOLDERS = 4096
TOO_MANY_PLACEHOLDERS = re.compile(r"[Nn]umber of elements of source < number of ones in mask")
FEWER = (2, 4, 16)
"""Divisors of the number of placeholders when there are too many, and the message does not say of how many."""
COARSE = 16
"""Sides that patches and strides usually divide."""
LEAST_DIRECT = 0.5
"""Penalties below it are of changes that put a number in the very place of another."""
Lesson = tuple[float, Candidate]
"""A penalty (lower is tried sooner) and a candidate."""

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
    (re.compile(r"Sizes of tensors must match .* Expected size (\d+) but got size (\d+)"), 2, 1),
    (re.compile(r"Sizes of tensors must match .* Expected size (\d+) but got size (\d+)"), 1, 2),
)
NDIMS = (  # patterns whose group is the number of axes wanted
    re.compile(r"[Ee]xpected (\d)D"),
    re.compile(r"expected (\d), got \d\)"),
    re.compile(r"or (\d)D \(batched\)"),
    re.compile(r"or (\d)D input"),
    re.compile(r"(\d)-D"),
    re.compile(r"len\(dims\) = (\d)"),
    re.compile(r"batched (\d)D"),
)
TOO_SMALL = re.compile(
    r"[Kk]ernel size|too small|smaller than|spatial element|non-empty|greater than 0|should be less than|"
    r"negative dimension|non-zero size|selected index k|must be > ?0|zero-size|empty|reflect|[Pp]adding size"
)
WANTS_IDS = re.compile(r"Long|[Ii]nt\b|int64|indices|index tensor|one_hot|must be long")
WANTS_FLOAT = re.compile(
    r"same dtype|Float but found|expected scalar type Float|Input type .*[Ll]ong|floating|not implemented for 'Long'|"
    r"dtype .*int64|normal_?kernel"
)
WANTS_BOOLS = re.compile(r"bool", re.IGNORECASE)


def lessons(
    outcome: Outcome, candidate: Candidate, hints: Hints, inputs: dict[str, object], optional: Sequence[str] = ()
) -> Iterator[Lesson]:
    """Yield what to try next after a failed trial.

    Args:
        outcome: The failure.
        candidate: What was tried.
        hints: What the model tells about itself.
        inputs: The tensors that were tried, by name.
        optional: Inputs that forward takes, whether given or not.
    """
    message = f"{type(outcome.error).__name__}: {outcome.error}"
    yield from _by_placeholders(message, candidate)
    yield from _by_absence(outcome, candidate, optional, hints)
    yield from _by_layer(outcome, candidate, inputs)
    yield from _by_pairs(message, candidate)
    if "out of range in self" in message or "out of bounds" in message:
        yield from _by_range(outcome, candidate, inputs)
    yield from _by_axes(message, candidate, hints)
    if WANTS_IDS.search(message):
        yield from _each(candidate, lambda g: _to_ids(g, hints), 1.0)
    if WANTS_FLOAT.search(message):
        yield from _each(
            candidate, lambda g: replace(g, kind="float") if g.kind in ("ids", "mask", "bools", "trues") else None, 1.0
        )
    if WANTS_BOOLS.search(message):
        has_masks = any(guess.kind == "mask" for _, guess in candidate)
        for kind in ("trues", "bools"):
            yield from _each(candidate, partial(_to_bools, kind=kind, masks_only=has_masks), 0.4)
    if TOO_SMALL.search(message):
        yield from _each(candidate, _larger, 1.0)
    if match := re.search(r"sum exactly to (\d+) .*split_sizes=\[([\d, ]+)\]", message):
        yield from _resized(candidate, int(match[1]), sum(map(int, match[2].split(","))))
    yield from _by_division(message, candidate)
    yield from _by_numbers(message, candidate)


def _by_placeholders(message: str, candidate: Candidate) -> Iterator[Lesson]:
    """A text has as many placeholder tokens as the picture beside it has features."""
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
        if tokens and tokens != features and 0 < (count := old * features // tokens) <= MOST_PLACEHOLDERS:
            yield -1.0, _with_placeholders(candidate, count)


def _with_placeholders(candidate: Candidate, count: int) -> Candidate:
    """Put another number of placeholders into the text, and lengthen or shorten all that is as long as the text."""
    marked = next(g for _, g in candidate if g.mark is not None)
    old = marked.shape[1]
    new = old - (marked.mark[1] if marked.mark else 0) + count
    return tuple(
        (name, replace(_set(g, 1, new), mark=(g.mark[0], count) if g.mark else None) if g.shape[1:2] == (old,) else g)
        for name, g in candidate
    )


def _by_absence(outcome: Outcome, candidate: Candidate, optional: Sequence[str], hints: Hints) -> Iterator[Lesson]:
    """An input that was left out, because it has a default of None, is used all the same where the forward failed.

    The message names it, or it is None in one of the calls that the error went through.
    """
    if outcome.error is None:
        return
    given, message = {name for name, _ in candidate}, str(outcome.error)
    missing = [name for name in optional if name not in given and re.search(rf"\b{re.escape(name)}\b", message)]
    if "None" in message:
        for frame, _ in traceback.walk_tb(outcome.error.__traceback__):
            missing += [n for n in optional if n not in given and n in frame.f_locals and frame.f_locals[n] is None]
    sizes = list(dict.fromkeys(dim for _, g in candidate for dim in (*g.shape[1:2], *g.shape[-1:]) if dim))
    length = next((g.shape[1] for _, g in candidate if g.kind == "ids" and len(g.shape) > 1), hints.tokens)
    for name in dict.fromkeys(missing):
        guesses = [Guess("mask", (BATCH, size)) for size in sizes] if MASK.search(name) else list(usual(name, hints))
        for rank, guess in enumerate(guesses[:MOST_GUESSES]):
            fitted = _set(guess, 1, length) if guess.kind == "ids" and guess.shape[1:] == (hints.tokens,) else guess
            yield 0.2 * rank, (*candidate, (name, fitted))


def _by_layer(outcome: Outcome, candidate: Candidate, inputs: dict[str, object]) -> Iterator[Lesson]:
    """The failing layer was handed an input (or a view of it): give it what it wants."""
    failed = outcome.failed_in
    if failed is None:
        return
    direct = [
        n for n, v in inputs.items() if isinstance(v, torch.Tensor) and v.untyped_storage().data_ptr() in failed.homes
    ]
    tensors = [name for name, guess in candidate if guess.kind not in ("constant", "dict", "tuple")]
    for name in direct or (tensors if len(tensors) == 1 else []):
        for rank, guess in enumerate(wanted_by(failed.module)):
            yield 0.3 * rank + (0.0 if direct else 1.5), _with(candidate, name, guess)


def _by_pairs(message: str, candidate: Candidate) -> Iterator[Lesson]:
    """The message says what size it got and what size it wants."""
    for pattern, got_group, want_group in PAIRS:
        for match in pattern.finditer(message):
            got, want = int(match[got_group]), int(match[want_group])
            if got != want and got > 0 and want > 0:
                yield from _resized(candidate, got, want)


def _resized(candidate: Candidate, got: int, want: int) -> Iterator[Lesson]:
    exact = [(name, g, axis) for name, g in candidate for axis, dim in enumerate(g.shape) if dim == got]
    for name, guess, axis in exact:
        yield 0.2, _with(candidate, name, _set(guess, axis, want))
        if len(guess.shape) >= 4 and axis >= 2:  # noqa: PLR2004  # the sides of a picture go together
            yield (
                0.1,
                _with(candidate, name, replace(guess, shape=(*guess.shape[:2], *[want] * (len(guess.shape) - 2)))),
            )
    for name, guess in candidate:
        yield from ((0.6, _with(candidate, name, g)) for g in _scaled(guess, got, want))


def _scaled(guess: Guess, got: int, want: int) -> Iterator[Guess]:
    """Guesses for a size that is computed from an input's sizes: a sum, a product, a grid of patches."""
    shape = guess.shape
    if len(shape) >= 4:  # noqa: PLR2004  # pictures: features and patches grow with the area
        sides = len(shape) - 2
        for extra in (0, 1, 2, 5):  # class and register tokens beside the patches
            if got > extra and want > extra:
                side = round(shape[-1] * ((want - extra) / (got - extra)) ** (1 / sides))
                for near in (side, side - side % COARSE, side + -side % COARSE):
                    if 0 < near != shape[-1]:
                        yield replace(guess, shape=(*shape[:2], *[near] * sides))
        return
    if not shape or guess.kind in ("constant", "dict", "tuple"):
        return
    if (last := shape[-1] + want - got) > 0 and len(shape) > 1:
        yield _set(guess, len(shape) - 1, last)  # concatenated with something of a fixed size
    for axis in range(1, len(shape)):
        scaled = shape[axis] * want / got
        if scaled >= 1 and scaled != shape[axis]:
            yield _set(guess, axis, round(scaled))


def _by_range(outcome: Outcome, candidate: Candidate, inputs: dict[str, object]) -> Iterator[Lesson]:
    """An embedding has fewer rows than an id, or than the sequence has positions."""
    failed = outcome.failed_in
    rows = getattr(failed.module, "num_embeddings", 0) if failed else 0
    if not rows:
        yield from _each(candidate, _of_smaller_range, 1.0)
        return
    yield from _each(candidate, lambda g: replace(g, high=rows) if g.kind == "ids" and g.high > rows else None, 0.2)
    for axis in (1, 2):
        yield from _each(candidate, partial(_at_most, axis=axis, most=rows), 0.4)


def _by_axes(message: str, candidate: Candidate, hints: Hints) -> Iterator[Lesson]:
    """The message says how many axes it wants."""
    wanted = {int(m[1]) for pattern in NDIMS for m in pattern.finditer(message)}
    if match := re.search(
        r"Dimension out of range \(expected to be in range of \[-\d+, (\d+)\], but got (-?\d+)\)", message
    ):
        index = int(match[2])
        wanted.add(index + 1 if index >= 0 else -index)
    if match := re.search(r"too many indices for tensor of dimension (\d)", message):
        wanted.add(int(match[1]) + 1)
    if match := re.search(r"too many values to unpack \(expected (\d)\)", message):
        wanted.add(int(match[1]))
    if "list index out of range" in message or "tuple index out of range" in message or "not enough values" in message:
        wanted |= {len(g.shape) + 1 for _, g in candidate if g.shape}
    for ndim in sorted(wanted):
        yield from _each(candidate, partial(_with_axes, ndim=ndim, hints=hints), 0.8)


def _with_axes(guess: Guess, ndim: int, hints: Hints) -> Guess | None:
    shape = guess.shape
    if not shape or len(shape) == ndim or not 1 <= ndim <= 6:  # noqa: PLR2004  # nothing usual has more axes
        return None
    if ndim == 4 and guess.kind == "float":  # noqa: PLR2004  # a picture
        side = hints.side or SIDES[0]
        return replace(guess, shape=(BATCH, hints.channels or 3, side, side))
    if len(shape) > ndim:
        return replace(guess, shape=(*shape[: ndim - 1], shape[-1]) if ndim > 1 else (BATCH,))
    return replace(guess, shape=(shape[0], *[hints.tokens] * (ndim - len(shape)), *shape[1:]))


def _by_division(message: str, candidate: Candidate) -> Iterator[Lesson]:
    """A size must be a multiple of some number."""
    for match in re.finditer(r"(?:divisible|multiple|divide|% ?)\D{0,40}?(\d+)", message):
        if (factor := int(match[1])) > 1:
            for axis in (1, 2, 3):
                yield from _each(candidate, partial(_rounded, axis=axis, factor=factor), 1.2)


def _rounded(guess: Guess, axis: int, factor: int) -> Guess | None:
    if axis >= len(guess.shape) or guess.shape[axis] % factor == 0:
        return None
    size = math.ceil(guess.shape[axis] / factor) * factor
    if len(guess.shape) >= 4 and axis >= 2:  # noqa: PLR2004  # the sides of a picture go together
        return replace(guess, shape=(*guess.shape[:2], *[size] * (len(guess.shape) - 2)))
    return _set(guess, axis, size)


def _by_numbers(message: str, candidate: Candidate) -> Iterator[Lesson]:
    """Last resort: put every other number of the message in the place of every size it also names."""
    numbers = list(dict.fromkeys(int(n) for n in re.findall(r"(?<![\w.])\d{1,5}(?![\w.])", message)))[:8]
    sizes = {dim for _, guess in candidate for dim in guess.shape if dim}
    for got in (n for n in numbers if n in sizes):
        for want in (n for n in numbers if n not in (got, 0)):
            yield from (
                (penalty + 1.5, changed)
                for penalty, changed in _resized(candidate, got, want)
                if penalty < LEAST_DIRECT
            )
    if match := re.search(r"shape '\[([-\d, ]+)\]' is invalid for input of size (\d+)", message):
        yield from _viewed([int(n) for n in match[1].split(",")], candidate)


def _viewed(wanted: list[int], candidate: Candidate) -> Iterator[Lesson]:
    """A view into a fixed shape: an input must have that many numbers per sample."""
    per_sample = math.prod(n for n in wanted[1:] if n > 0)
    for name, guess in candidate:
        if guess.kind == "float" and per_sample > 0:
            yield 0.9, _with(candidate, name, replace(guess, shape=(BATCH, per_sample)))
            if len(guess.shape) > 2:  # noqa: PLR2004  # pictures and sequences keep their axes
                side = round((per_sample / max(guess.shape[1], 1)) ** (1 / (len(guess.shape) - 2)))
                yield (
                    0.8,
                    _with(
                        candidate,
                        name,
                        replace(guess, shape=(*guess.shape[:2], *[max(side, 1)] * (len(guess.shape) - 2))),
                    ),
                )


def _larger(guess: Guess) -> Guess | None:
    """Double the sides of a picture or a signal."""
    if guess.kind != "float" or len(guess.shape) < 3:  # noqa: PLR2004  # nothing to enlarge
        return None
    return replace(guess, shape=(*guess.shape[:2], *[dim * 2 for dim in guess.shape[2:]]))


def _of_smaller_range(guess: Guess) -> Guess | None:
    return replace(guess, high=max(guess.high // 4, 2)) if guess.kind == "ids" else None


def _to_bools(guess: Guess, kind: str, masks_only: bool) -> Guess | None:
    return replace(guess, kind=kind) if guess.kind == "mask" or (guess.kind == "ids" and not masks_only) else None


def _at_most(guess: Guess, axis: int, most: int) -> Guess | None:
    return _set(guess, axis, most) if len(guess.shape) > axis and guess.shape[axis] > most else None


def _to_ids(guess: Guess, hints: Hints) -> Guess | None:
    if guess.kind not in ("float", "unit", "mask"):
        return None
    return Guess("ids", guess.shape[:2] if len(guess.shape) > 1 else (BATCH,), high=hints.vocab or TOKENS)


def _each(candidate: Candidate, change: Callable[[Guess], Guess | None], penalty: float) -> Iterator[Lesson]:
    """Change each input in turn, and all of them together."""
    changed = {name: new for name, guess in candidate if (new := change(guess)) is not None and new != guess}
    for name, guess in changed.items():
        yield penalty, _with(candidate, name, guess)
    if len(changed) > 1:
        yield penalty + 0.1, tuple((name, changed.get(name, guess)) for name, guess in candidate)


def _with(candidate: Candidate, name: str, guess: Guess) -> Candidate:
    return tuple((n, guess if n == name else g) for n, g in candidate)


def _set(guess: Guess, axis: int, size: int) -> Guess:
    return replace(guess, shape=(*guess.shape[:axis], size, *guess.shape[axis + 1 :]))
