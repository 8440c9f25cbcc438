"""Inputs that a forward uses although its signature lets them be left out."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Sequence

from gradscope.target.infer.changes import Lesson, with_size
from gradscope.target.infer.guess import BATCH, Candidate, Guess
from gradscope.target.infer.roles import MASK, Hints, usual
from gradscope.target.infer.trial import Outcome

MOST_GUESSES = 4
"""Ways to fill an input that was left out."""


def by_absence(outcome: Outcome, candidate: Candidate, optional: Sequence[str], hints: Hints) -> Iterator[Lesson]:
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
            is_text = guess.kind == "ids" and guess.shape[1:] == (hints.tokens,)
            yield 0.2 * rank, (*candidate, (name, with_size(guess, 1, length) if is_text else guess))
