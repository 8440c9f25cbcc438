"""Changes to a candidate: one input, or one size of it, for another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from gradscope.target.infer.guess import Candidate, Guess

Lesson = tuple[float, Candidate]
"""A penalty (lower is tried sooner) and a candidate."""


APART = 0.3
"""Added where only one of several inputs that are alike is changed."""


def each(candidate: Candidate, change: Callable[[Guess], Guess | None], penalty: float) -> Iterator[Lesson]:
    """Change each input in turn, and all of them together."""
    changed = {name: new for name, guess in candidate if (new := change(guess)) is not None and new != guess}
    for name, guess in changed.items():
        yield penalty, with_guess(candidate, name, guess)
    if len(changed) > 1:
        yield penalty + 0.1, tuple((name, changed.get(name, guess)) for name, guess in candidate)


def with_alike(candidate: Candidate, lessons: Iterable[Lesson]) -> Iterator[Lesson]:
    """Yield each lesson, and where it changes one of several inputs that are alike, also the change of all of them.

    Two views of a picture, an anchor and its positives, the origins and directions of rays: what one is, all are.
    """
    before = dict(candidate)
    for penalty, learnt in lessons:
        changed = [(name, guess) for name, guess in learnt if name in before and guess != before[name]]
        old, new = (before[changed[0][0]], changed[0][1]) if len(changed) == 1 else (None, None)
        is_alike = old is not None and len(old.shape) > 1 and sum(guess == old for guess in before.values()) > 1
        if is_alike and new is not None and len(learnt) == len(candidate):
            yield penalty, tuple((name, new if guess == old else guess) for name, guess in candidate)
        yield penalty + APART * is_alike, learnt


def with_guess(candidate: Candidate, name: str, guess: Guess) -> Candidate:
    """Put a guess in the place of an input."""
    return tuple((n, guess if n == name else g) for n, g in candidate)


def with_size(guess: Guess, axis: int, size: int) -> Guess:
    """Give one axis of an input another size."""
    return replace(guess, shape=(*guess.shape[:axis], size, *guess.shape[axis + 1 :]))
