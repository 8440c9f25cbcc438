"""How many placeholder tokens a text must have for the picture or sound beside it, from what a failure says."""

from __future__ import annotations

import itertools
import re
import traceback
from collections.abc import Iterator
from dataclasses import replace

import torch

from gradscope.target.infer.changes import Lesson, with_size
from gradscope.target.infer.guess import TRIAL_BATCH, Candidate, Mark
from gradscope.target.infer.roles import Hints
from gradscope.target.infer.trial import Outcome

PLACEHOLDERS = (
    re.compile(r"tokens:? (?:tensor\()?(\d+)\D{0,20}features:? (?:tensor\()?(\d+)"),
    re.compile(r"Got (?P<features>\d+) [\w ]+ for (?P<tokens>\d+)"),
)
"""What messages say of the numbers of placeholders and of features."""
TEXT = re.compile(r"^(input_ids|inputs_embeds)$")
FEATURES = re.compile(r"feature|embed")
"""Names of variables that hold the text, and what is put into it."""
PLACES = 12
"""Placeholders that are put into a text before anything says how many there should be."""
MOST_PLACEHOLDERS = 4096
"""A text with more of them is longer than a step of a second allows."""
TOO_MANY_PLACEHOLDERS = re.compile(r"[Nn]umber of elements of source < number of ones in mask")
FEWER = (2, 4, 16)
"""Divisors of the number of placeholders when there are too many, and the message does not say of how many."""


def by_placeholders(outcome: Outcome, candidate: Candidate, hints: Hints) -> Iterator[Lesson]:
    """A text has as many placeholder tokens as the picture beside it has features.

    Some models count every number of a feature in their message, so that it is a width times too many; others count
    something else, and only the features themselves, where the failure had them in hand, tell.
    """
    marks = next((g.marks for _, g in candidate if g.marks), ())
    message = str(outcome.error)
    if not marks or not (TOO_MANY_PLACEHOLDERS.search(message) or any(p.search(message) for p in PLACEHOLDERS)):
        return
    for index, mark in _named(message, marks):
        counts = [*_counts(message, mark.count, hints), *_in_hand(outcome.error)]
        for rank, count in enumerate(dict.fromkeys(counts)):
            if 0 < count <= MOST_PLACEHOLDERS and count != mark.count:
                yield (rank + index) / 10 - 1.0, _with_placeholders(candidate, index, count)


def with_run(candidate: Candidate, token: int, flag: int) -> Candidate:
    """Put a run of placeholders more into the text, of a length of its own, and lengthen all that is as long as it."""
    counts = {mark.count for _, g in candidate for mark in g.marks}
    mark = Mark(token, next(count for count in itertools.count(PLACES) if count not in counts), flag)
    text = next((name for name, g in candidate if g.marks or TEXT.search(name)), None)
    old = dict(candidate)[text].shape[1] if text is not None else 0
    return tuple(
        (name, replace(with_size(g, 1, old + mark.count), marks=(*g.marks, mark) if g.marks or name == text else ()))
        if old and g.shape[1:2] == (old,)
        else (name, g)
        for name, g in candidate
    )


def _named(message: str, marks: tuple[Mark, ...]) -> list[tuple[int, Mark]]:
    """Return the runs, by number, that a message may be about: those of as many placeholders as it counts, if any."""
    counted = {int(m.groupdict().get("tokens") or m[1]) for pattern in PLACEHOLDERS for m in pattern.finditer(message)}
    runs = list(enumerate(marks))
    return [(index, mark) for index, mark in runs if mark.count * TRIAL_BATCH in counted] or runs


def _in_hand(error: BaseException | None) -> Iterator[int]:
    """Yield how many features of a sample the calls had in hand that an error went through, the innermost first."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__ if error is not None else None)]
    for frame in reversed(frames):
        values = {n: v for n, v in frame.f_locals.items() if isinstance(v, torch.Tensor) and v.dim() > 1}
        text = next((v for n, v in values.items() if TEXT.search(n)), None)
        for name, value in values.items():
            if text is not None and FEATURES.search(name) and value.shape[:2] != text.shape[:2]:
                yield value.shape[:-1].numel() // len(text)


def _counts(message: str, old: int, hints: Hints) -> Iterator[int]:
    """Yield how many placeholders there should be where there are `old`."""
    if TOO_MANY_PLACEHOLDERS.search(message):
        yield from (old // by for by in FEWER)
    for pattern in PLACEHOLDERS:
        if (match := pattern.search(message)) is None:
            continue
        named = match.groupdict() or {"tokens": match[1], "features": match[2]}
        tokens, features = int(named["tokens"]), int(named["features"])
        yield from (old * features // tokens // width for width in (1, hints.width) if tokens and width)


def _with_placeholders(candidate: Candidate, index: int, count: int) -> Candidate:
    """Put another number of placeholders into the text, and lengthen or shorten all that is as long as the text."""
    marked = next(g for _, g in candidate if g.marks)
    old = marked.shape[1]
    marks = (*marked.marks[:index], replace(marked.marks[index], count=count), *marked.marks[index + 1 :])
    new = old - marked.marks[index].count + count
    return tuple(
        (name, replace(with_size(g, 1, new), marks=marks if g.marks else ())) if g.shape[1:2] == (old,) else (name, g)
        for name, g in candidate
    )
