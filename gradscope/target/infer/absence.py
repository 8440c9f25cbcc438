"""Inputs that a forward uses although its signature lets them be left out."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import FrameType

from torch import nn

from gradscope.target.infer.changes import Lesson, with_size
from gradscope.target.infer.conditions import named_in_condition
from gradscope.target.infer.documented import UNTOLD
from gradscope.target.infer.guess import BATCH, Candidate, Guess
from gradscope.target.infer.layers import wanted_by
from gradscope.target.infer.roles import GRIDS, IDS, LABEL, LENGTHS, MASK, TYPES, Hints, annotated, usual
from gradscope.target.infer.trial import Outcome

WANTED = re.compile(r"must be|required|cannot be|need|missing|provide|specify|expected", re.IGNORECASE)
"""Words of a message about something that was left out; it may name a group of inputs, such as the labels."""
IN_PLACE_OF_IDS = "inputs_embeds"
"""An input that models take in place of ids and never beside them."""
IDS_NAME = "input_ids"
"""What it stands in place of."""
NO_IDS = re.compile(r"input_ids\W+(is expected to|must|should) be\W+None|has no attribute '\w*embed\w*'")
"""What is said where ids cannot be taken."""
UNNAMED_COST = 0.3
"""Cost of filling an input that is merely None where a message names another."""
MOST_GUESSES = 4
"""Ways to fill an input that was left out."""


def by_absence(outcome: Outcome, candidate: Candidate, optional: Sequence[str], hints: Hints) -> Iterator[Lesson]:
    """An input that was left out, because it has a default of None, is used all the same where the forward failed.

    The message names it, or says what a group of inputs is called, or it is None in a call that the error went through.
    """
    if outcome.error is None:
        return
    message = f"{outcome.error} {named_in_condition(outcome.error)}"
    left_out = [name for name in optional if name not in dict(candidate)]
    if any(guess.kind == "ids" for _, guess in candidate):
        left_out = [name for name in left_out if name != IN_PLACE_OF_IDS]
    named = [name for name in left_out if re.search(rf"\b{re.escape(name)}\b", message)]
    if not named and WANTED.search(message):  # "All labels must be provided"
        named = [name for name in left_out if "_" in name and re.search(rf"\b{name.split('_')[-1]}\b", message)]
    missing = named + (_none_on_the_way(outcome.error, left_out, hints) if "None" in message else [])
    guesses = {name: list(_guesses(name, candidate, hints)) for name in dict.fromkeys(missing)}
    for name in (name for name, ways in guesses.items() if not ways and name not in optional):
        guesses[name] = list(wanted_by(outcome.failed_in.module)) if outcome.failed_in is not None else []
    together = tuple((name, guesses[name][0]) for name in dict.fromkeys(named) if guesses[name])
    if len(together) > 1:
        yield -0.5, (*candidate, *together)
    yield from _in_place_of_ids(message, candidate, optional, hints)
    for name, ways in guesses.items():
        aside = UNNAMED_COST if named and name not in named else 0.0
        yield from ((aside + 0.2 * rank, (*candidate, (name, guess))) for rank, guess in enumerate(ways[:MOST_GUESSES]))


def _none_on_the_way(error: BaseException, names: Sequence[str], hints: Hints) -> list[str]:
    """Return the inputs that are None in a call that an error went through, those that its lines name first.

    A forward that takes any keyword hands it on, perhaps to a layer that cannot do without: what is None there, and no
    input of the forward's own, is one as well.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    lines = [entry.line or "" for entry in traceback.extract_tb(error.__traceback__)]
    none = [[name for name, value in frame.f_locals.items() if value is None] for frame in frames]
    found = [name for in_frame in reversed(none) for name in names if name in in_frame]
    indexed = [name for name in found if re.search(rf"\b{re.escape(name)}[.\[]", lines[-1])]
    if indexed:
        return indexed
    asked = [[n for n in in_frame if _is_word_of(n, line)] for in_frame, line in zip(none, lines, strict=True)]
    own = [[name for name in in_frame if name in names] for in_frame in reversed(asked)]
    innermost = next(filter(None, own), [])
    handed_on = (_handed_on(frame, in_frame, hints) for frame, in_frame in zip(frames, asked, strict=True))
    return [*innermost, *found] or next(filter(None, handed_on), [])


def _is_word_of(name: str, line: str) -> bool:
    return bool(re.search(rf"\b{re.escape(name)}\b", line))


def _handed_on(frame: FrameType, none: Sequence[str], hints: Hints) -> list[str]:
    """Return which of the names are parameters of a module inside one whose forward hands on any keyword."""
    code = frame.f_code
    if not hints.takes_any or code.co_name != "forward" or not isinstance(frame.f_locals.get("self"), nn.Module):
        return []
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return [name for name in none if name in parameters and name not in hints.annotations]


def _in_place_of_ids(message: str, candidate: Candidate, optional: Sequence[str], hints: Hints) -> Iterator[Lesson]:
    """Give the embedded text instead of its ids, where the message says so, or the model has no embedding."""
    ids = dict(candidate).get(IDS_NAME)
    if ids is None or ids.kind != "ids" or IN_PLACE_OF_IDS not in optional:
        return
    if not (NO_IDS.search(message) or IN_PLACE_OF_IDS in message):
        return
    length = ids.shape[1:2] or (hints.tokens,)
    embedded = Guess("float", (BATCH, *length, hints.width))
    rest = tuple((name, guess) for name, guess in candidate if name not in (IDS_NAME, IN_PLACE_OF_IDS))
    yield 0.0, ((IN_PLACE_OF_IDS, embedded), *rest)


def _guesses(name: str, candidate: Candidate, hints: Hints) -> Iterator[Guess]:
    """Yield ways to fill an input beside those that are given: as documented, as long as they are, as usual."""
    if name in hints.shells:
        yield hints.shells[name]
    yield from annotated(name, hints.annotations.get(name, ""))
    length = next((g.shape[1] for _, g in candidate if g.kind == "ids" and len(g.shape) > 1), hints.tokens)
    if LENGTHS.search(name.lower()):  # a documented type says less than the name
        yield from usual(name, hints)
    if (told := hints.documented.get(name)) is not None and not GRIDS.search(name):
        shape = tuple(length if dim == hints.tokens else dim for dim in told.shape)
        yield replace(told, shape=shape, kind=_kind(name) if told.kind == UNTOLD else told.kind)
    if MASK.search(name):
        sizes = dict.fromkeys(dim for _, g in candidate for dim in (*g.shape[1:2], *g.shape[-1:]) if dim)
        yield from (Guess("mask", (BATCH, size)) for size in sizes)
        return
    for guess in usual(name, hints):
        is_text = guess.kind == "ids" and guess.shape[1:] == (hints.tokens,)
        yield with_size(guess, 1, length) if is_text else guess


def _kind(name: str) -> str:
    """Return what an input of which only the shape is told usually holds, by its name."""
    if MASK.search(name):
        return "mask"
    return "ids" if IDS.search(name) or TYPES.search(name) or LABEL.search(name) else "float"
