"""What a failed trial teaches: the next guesses, from the failing layer and from what its message says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from gradscope.target.infer.absence import by_absence
from gradscope.target.infer.axes import by_axes
from gradscope.target.infer.changes import Lesson, each, with_alike, with_guess, with_size
from gradscope.target.infer.conditions import by_condition
from gradscope.target.infer.flattened import by_flattening
from gradscope.target.infer.guess import BATCH, SHELLS, Candidate, Guess
from gradscope.target.infer.keys import by_keys
from gradscope.target.infer.layers import TOKENS, wanted_by
from gradscope.target.infer.placeholders import by_placeholders
from gradscope.target.infer.roles import Hints
from gradscope.target.infer.sizes import VIDEO_AXES, by_division, by_numbers, by_packing, by_pairs, resized
from gradscope.target.infer.trial import Outcome
from gradscope.target.infer.unpacked import by_unpacking

TOO_SMALL = re.compile(
    r"[Kk]ernel size|too small|smaller than|spatial element|non-empty|greater than 0|should be less than|"
    r"negative dimension|non-zero size|selected index k|must be > ?0|zero-size|empty|reflect|[Pp]adding size"
)
WANTS_IDS = re.compile(r"Long|[Ii]nt\b|int64|indices|index tensor|one_hot|must be long")
WANTS_FLOAT = re.compile(
    r"same dtype|Float but found|expected scalar type Float|Input type .*[Ll]ong|floating|not implemented for 'Long'|"
    r"dtype .*int64|normal_?kernel"
)
WANTS_TYPE = {
    "double": re.compile(r"\bDouble|c10::double|float64"),
    "half": re.compile(r"\bHalf|c10::Half|float16"),
    "bfloat16": re.compile(r"BFloat16|bfloat16"),
    "complex": re.compile(r"ComplexFloat|complex"),
    "bytes": re.compile(r"\bByte|uint8"),
}
"""What messages say where numbers must be of another floating type, by the kind of guess that has it."""
WANTS_BOOLS = re.compile(r"bool", re.IGNORECASE)
TOO_MANY_CLASSES = "Class values must be smaller than num_classes"
SPATIAL_TARGETS = "spatial targets"
"""What the cross-entropy of a picture says of labels that are no picture."""
SOUND = 4000
"""Samples of a sound that is more than too short: a quarter of a second, enough for several strides of eight."""
FEW_FRAMES, COLOURS = 2, 4
"""Frames of a video that is too large, and channels that a frame has at most."""
FEWEST_ON_A_SIDE = 16
"""Points a side that a picture or a signal keeps, however slow the forward is."""
IS_NO_MASK = re.compile(r"operator\.invert|boolean mask|condition to be a boolean|bool.*(mask|index)")
"""What messages say where an input that is not called a mask is used as one."""


def lessons(
    outcome: Outcome, candidate: Candidate, hints: Hints, inputs: dict[str, object], optional: Sequence[str] = ()
) -> Iterator[Lesson]:
    """Yield what to try next after a failed trial; what goes token by token with a text stays as long as it.

    Args:
        outcome: The failure.
        candidate: What was tried.
        hints: What the model tells about itself.
        inputs: The tensors that were tried, by name.
        optional: Inputs that forward takes, whether given or not.
    """
    texts = {name for name, guess in candidate if _goes_with_text(guess, candidate)}
    for penalty, learnt in with_alike(candidate, _lessons(outcome, candidate, hints, inputs, optional)):
        if len({guess.shape[:2] for name, guess in learnt if name in texts}) < 2:  # noqa: PLR2004  # they agree
            yield penalty, learnt


def _goes_with_text(guess: Guess, candidate: Candidate) -> bool:
    """Whether an input has one number for every token of a text with placeholders in it."""
    text = next((g for _, g in candidate if g.marks), None)
    return text is not None and guess.shape == text.shape and guess.kind != "float"


def _lessons(
    outcome: Outcome, candidate: Candidate, hints: Hints, inputs: dict[str, object], optional: Sequence[str]
) -> Iterator[Lesson]:
    message = f"{type(outcome.error).__name__}: {outcome.error}"
    if outcome.too_much:
        yield from each(candidate, _halved, 0.0)
        return
    yield from by_placeholders(outcome, candidate, hints)
    yield from by_absence(outcome, candidate, optional, hints)
    yield from by_condition(outcome.error, candidate, hints)
    yield from by_keys(outcome.error, candidate, inputs)
    yield from by_flattening(outcome.error, candidate)
    yield from _by_layer(outcome, candidate, inputs)
    yield from by_pairs(message, candidate)
    if match := re.search(r"index (\d+) is out of range", message):
        for most in (int(match[1]) + 1, int(match[1])):
            yield from each(candidate, partial(_at_most, axis=1, most=most), 0.4)
    if "out of range in self" in message or "out of bounds" in message or TOO_MANY_CLASSES in message:
        yield from _by_range(outcome, candidate)
    yield from by_axes(message, candidate, hints)
    yield from by_unpacking(outcome.error, candidate, hints)
    if WANTS_IDS.search(message):
        yield from each(candidate, lambda g: _to_ids(g, hints), 1.0)
    for kind in (kind for kind, pattern in WANTS_TYPE.items() if pattern.search(message)):
        change = partial(_to_type, kind=kind)
        yield from ((penalty - 0.3, learnt) for penalty, learnt in each(candidate, change, 0.6))
    if WANTS_FLOAT.search(message):
        yield from each(
            candidate, lambda g: replace(g, kind="float") if g.kind in ("ids", "mask", "bools", "trues") else None, 1.0
        )
    if WANTS_BOOLS.search(message):
        has_masks = any(guess.kind == "mask" for _, guess in candidate)
        for kind in ("trues", "bools"):
            yield from each(candidate, partial(_to_bools, kind=kind, masks_only=has_masks), 0.4)
            if IS_NO_MASK.search(message):
                yield from each(candidate, partial(_to_flags, kind=kind, tokens=hints.tokens), 0.8)
    if TOO_SMALL.search(message):
        yield from each(candidate, _larger, 1.0)
    if SPATIAL_TARGETS in message:
        yield from each(candidate, partial(_one_a_pixel, candidate=candidate), 0.1)
    yield from by_packing(message, candidate)
    yield from _by_split(message, candidate)
    yield from by_division(message, candidate)
    yield from by_numbers(message, candidate)


def _by_layer(outcome: Outcome, candidate: Candidate, inputs: dict[str, object]) -> Iterator[Lesson]:
    """The failing layer was handed an input (or a view of it): give it what it wants."""
    failed = outcome.failed_in
    if failed is None:
        return
    direct = [
        n for n, v in inputs.items() if isinstance(v, torch.Tensor) and v.untyped_storage().data_ptr() in failed.homes
    ]
    kinds = {name: guess.kind for name, guess in candidate}
    direct = [name for name in direct if kinds.get(name) not in ("patches", "rows")]  # their shapes have a meaning
    tensors = [name for name, kind in kinds.items() if kind not in ("constant", *SHELLS)]
    for name in direct or (tensors if len(tensors) == 1 else []):
        if (turned := _turned(failed.module, dict(candidate)[name])) is not None:
            yield -0.1, with_guess(candidate, name, turned)
        for rank, guess in enumerate(wanted_by(failed.module)):
            yield 0.3 * rank + (0.0 if direct else 1.5), with_guess(candidate, name, guess)


def _turned(layer: torch.nn.Module, guess: Guess) -> Guess | None:
    """Turn frames round, B x T x C, for a convolution over time: what has several channels is no long raw signal."""
    if not isinstance(layer, torch.nn.Conv1d | torch.nn.ConvTranspose1d) or layer.in_channels == 1:
        return None
    if len(guess.shape) != 3 or guess.shape[2] != layer.in_channels:  # noqa: PLR2004  # B x T x C
        return None
    return replace(guess, kind="float", shape=(guess.shape[0], guess.shape[2], guess.shape[1]))


def _by_range(outcome: Outcome, candidate: Candidate) -> Iterator[Lesson]:
    """An embedding has fewer rows than an id, or than the sequence has positions."""
    failed = outcome.failed_in
    if match := re.search(r"out of bounds for dimension \d+ with size (\d+)", str(outcome.error)):
        size = int(match[1])
        yield from each(candidate, lambda g: replace(g, low=0, high=size) if _reaches(g, size) else None, 0.0)
    rows = getattr(failed.module, "num_embeddings", 0) if failed else 0
    if not rows:
        yield from each(candidate, _of_smaller_range, 1.0)
        return
    yield from each(candidate, lambda g: replace(g, high=rows) if g.kind == "ids" and g.high > rows else None, 0.2)
    for axis in (1, 2):
        yield from each(candidate, partial(_at_most, axis=axis, most=rows), 0.4)


def _reaches(guess: Guess, size: int) -> bool:
    """Whether ids go beyond a size."""
    return guess.kind == "ids" and guess.high > size > 0


def _by_split(message: str, candidate: Candidate) -> Iterator[Lesson]:
    """What is split into parts of given sizes must be as long as their sum, or have so many parts in each sample."""
    match = re.search(r"sum exactly to (\d+) .*split_sizes=\[([\d, ]+)\]", message)
    if match is None:
        return
    parts = [int(part) for part in match[2].split(",")]
    yield from resized(candidate, int(match[1]), sum(parts))
    if len(parts) == int(match[1]) and len(set(parts)) == 1:
        for name, guess in candidate:
            if guess.kind == "float" and len(guess.shape) == 4:  # noqa: PLR2004  # one picture a sample
                shape = (guess.shape[0], parts[0], *guess.shape[1:])
                yield -0.5, with_guess(candidate, name, replace(guess, shape=shape))


def _larger(guess: Guess) -> Guess | None:
    """Double the sides of a picture or a signal; a sound of one channel is long."""
    if guess.kind != "float" or len(guess.shape) < 3:  # noqa: PLR2004  # nothing to enlarge
        return None
    if len(guess.shape) == 3 and guess.shape[1] == 1 and guess.shape[2] < SOUND:  # noqa: PLR2004  # B x 1 x samples
        return with_size(guess, 2, SOUND)
    return replace(guess, shape=(*guess.shape[:2], *[dim * 2 for dim in guess.shape[2:]]))


def _halved(guess: Guess) -> Guess | None:
    """Halve the sides of a picture or a signal, as long as they hold a few patches, and keep two frames of a video."""
    sides = guess.shape[2:]
    if guess.kind == "float" and len(guess.shape) == VIDEO_AXES and guess.shape[1] > FEW_FRAMES and sides[0] <= COLOURS:
        return with_size(guess, 1, FEW_FRAMES)
    if guess.kind != "float" or not sides or min(sides) < 2 * FEWEST_ON_A_SIDE:
        return None
    return replace(guess, shape=(*guess.shape[:2], *[side // 2 for side in sides]))


def _of_smaller_range(guess: Guess) -> Guess | None:
    return replace(guess, high=max(guess.high // 4, 2)) if guess.kind == "ids" else None


def _to_type(guess: Guess, kind: str) -> Guess | None:
    if kind == "bytes":
        return replace(guess, kind=kind) if guess.kind in ("float", "unit", "ids") else None
    return replace(guess, kind=kind) if guess.kind in ("float", "unit") else None


def _to_bools(guess: Guess, kind: str, masks_only: bool) -> Guess | None:
    return replace(guess, kind=kind) if guess.kind == "mask" or (guess.kind == "ids" and not masks_only) else None


def _to_flags(guess: Guess, kind: str, tokens: int) -> Guess | None:
    """Use an input of numbers as a mask of the samples, or of the tokens of each."""
    return Guess(kind, (BATCH, tokens)) if guess.kind in ("float", "unit") else None


def _one_a_pixel(guess: Guess, candidate: Candidate) -> Guess | None:
    """Give every pixel of the picture beside it a label."""
    picture = next((g for _, g in candidate if g.kind == "float" and len(g.shape) == 4), None)  # noqa: PLR2004
    is_label = guess.kind in ("ids", "mask", "trues", "bools")
    return Guess("ids", (BATCH, *picture.shape[2:])) if picture is not None and is_label else None


def _at_most(guess: Guess, axis: int, most: int) -> Guess | None:
    return with_size(guess, axis, most) if len(guess.shape) > axis and guess.shape[axis] > most else None


def _to_ids(guess: Guess, hints: Hints) -> Guess | None:
    if guess.kind not in ("float", "unit", "mask"):
        return None
    return Guess("ids", guess.shape[:2] if len(guess.shape) > 1 else (BATCH,), high=hints.vocab or TOKENS)
