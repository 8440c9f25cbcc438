"""Inputs that a forward uses although its signature lets them be left out."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gradscope.target.infer.changes import Lesson, with_size
from gradscope.target.infer.conditions import named_in_condition
from gradscope.target.infer.documented import UNTOLD
from gradscope.target.infer.guess import BATCH, Candidate, Guess
from gradscope.target.infer.roles import GRIDS, IDS, LABEL, MASK, TYPES, Hints, usual
from gradscope.target.infer.trial import Outcome

WANTED = re.compile(r"must be|required|cannot be|need|missing|provide|specify|expected", re.IGNORECASE)
"""Words of a message about something that was left out; it may name a group of inputs, such as the labels."""
IN_PLACE_OF_IDS = "inputs_embeds"
"""An input that models take in place of ids and never beside them."""
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
    missing = named + (_none_on_the_way(outcome.error, left_out) if "None" in message else [])
    guesses = {name: list(_guesses(name, candidate, hints)) for name in dict.fromkeys(missing)}
    together = tuple((name, guesses[name][0]) for name in dict.fromkeys(named) if guesses[name])
    if len(together) > 1:
        yield -0.5, (*candidate, *together)
    for name, ways in guesses.items():
        yield from ((0.2 * rank, (*candidate, (name, guess))) for rank, guess in enumerate(ways[:MOST_GUESSES]))


def _none_on_the_way(error: BaseException, names: Sequence[str]) -> list[str]:
    """Return the inputs that are None in a call that an error went through; those of the failing line, if any are."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    found = [n for frame in reversed(frames) for n in names if n in frame.f_locals and frame.f_locals[n] is None]
    lines = [entry.line or "" for entry in traceback.extract_tb(error.__traceback__)]
    asked = [name for name in found if re.search(rf"\b{re.escape(name)}[.\[]", lines[-1])]
    return asked or found


def _guesses(name: str, candidate: Candidate, hints: Hints) -> Iterator[Guess]:
    """Yield ways to fill an input beside those that are given: as documented, as long as they are, as usual."""
    if name in hints.shells:
        yield hints.shells[name]
    length = next((g.shape[1] for _, g in candidate if g.kind == "ids" and len(g.shape) > 1), hints.tokens)
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
