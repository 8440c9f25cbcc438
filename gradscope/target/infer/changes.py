"""Changes to a candidate: one input, or one size of it, for another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from gradscope.target.infer.guess import Candidate, Guess

Lesson = tuple[float, Candidate]
"""A penalty (lower is tried sooner) and a candidate."""


def each(candidate: Candidate, change: Callable[[Guess], Guess | None], penalty: float) -> Iterator[Lesson]:
    """Change each input in turn, and all of them together."""
    changed = {name: new for name, guess in candidate if (new := change(guess)) is not None and new != guess}
    for name, guess in changed.items():
        yield penalty, with_guess(candidate, name, guess)
    if len(changed) > 1:
        yield penalty + 0.1, tuple((name, changed.get(name, guess)) for name, guess in candidate)


def with_guess(candidate: Candidate, name: str, guess: Guess) -> Candidate:
    """Put a guess in the place of an input."""
    return tuple((n, guess if n == name else g) for n, g in candidate)


def with_size(guess: Guess, axis: int, size: int) -> Guess:
    """Give one axis of an input another size."""
    return replace(guess, shape=(*guess.shape[:axis], size, *guess.shape[axis + 1 :]))
