"""One attempt at a model of a type: a class, a size, and whether inputs go through it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from gradscope.errors import InputsError
from gradscope.target.draws import Draws
from gradscope.target.hf.guesses import feeds_several, guesses
from gradscope.target.hf.more import beside
from gradscope.target.hf.shrink import IN_STEP, SAME_PICTURES, SAME_WIDTHS, SMALL, UNCHANGED
from gradscope.target.infer.first import first_candidates
from gradscope.target.infer.hints import read_hints
from gradscope.target.infer.scratch import scratch_copy
from gradscope.target.infer.search import Inferred, search_inputs
from gradscope.target.infer.trials import NothingFitsError

NOT_CALLED = "no inputs were found for the whole"
"""Why a part is taken of a composite that has a forward."""
MOST_SECONDS_EACH = 8.0
"""Processor time spent on the inputs of each class and size."""
SIZES = {
    SMALL: "in miniature",
    SAME_WIDTHS: "with few layers and experts",
    IN_STEP: "with few layers, all widths divided alike",
    SAME_PICTURES: "with few layers and experts",
    UNCHANGED: "in full size",
}
"""What the levels are called."""
BLIND_COST = 0.5
"""Cost of guesses from the layers alone against those from the signature and the configuration."""
MOST_TRIALS = 60
"""Forwards tried for each class: a tiny model takes milliseconds."""


@dataclass(frozen=True)
class Settled:
    """A model that was built from the seed, with inputs if any were found.

    Attributes:
        model: The model.
        inferred: A batch it takes; None where none was found.
        notes: What the user should know.
    """

    model: nn.Module
    inferred: Inferred | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Attempt:
    """What is tried.

    Attributes:
        cls: The class.
        level: How far to shrink it.
        partial: Whether inputs may leave a part of it idle.
        portion: The part of the configuration that the class is built from; empty where it takes all of it.
        why: Why a class of a part is tried; empty where the user asked for it.
    """

    cls: Any
    level: int
    partial: bool
    portion: str = ""
    why: str = ""


def inputs_of(
    model: nn.Module, attempt: Attempt, config: Any, label: str, *, after: NothingFitsError | None = None
) -> Inferred | NothingFitsError | None:
    """Look for inputs without a trace in the random numbers that come after; what was furthest where there are none.

    After a search that failed, last resorts are tried as well, beginning with what got furthest.
    """
    draws = Draws()
    inferred = _try(model, attempt, config, label, after)
    draws.again()
    return inferred


def _try(
    model: nn.Module, attempt: Attempt, config: Any, label: str, after: NothingFitsError | None
) -> Inferred | NothingFitsError | None:
    scratch = scratch_copy(model)
    if scratch is None:
        return None
    fresh: Callable[[], nn.Module | None] = lambda: scratch  # noqa: E731  # BatchNorm's statistics do not matter here
    first = guesses(attempt.cls, config, partial=attempt.partial)
    if attempt.partial or not feeds_several(attempt.cls):
        shapes = ((BLIND_COST + cost, guess) for cost, guess in first_candidates(scratch, read_hints(scratch)))
        first = itertools.chain(first, shapes)
    if after is not None:
        first = itertools.chain([(0.0, after.candidate)], first)
    extend = functools.partial(beside, attempt.cls, config)
    try:
        return search_inputs(
            scratch, fresh, label, first, most_trials=MOST_TRIALS, most_seconds=MOST_SECONDS_EACH, extend=extend,
            is_last=after is not None,
        )  # fmt: skip
    except NothingFitsError as failure:
        return failure.with_traceback(None)  # its frames hold the copy that was run
    except InputsError:
        return None


def note_of(attempt: Attempt, model_type: str) -> str:
    """Say what was built."""
    size = SIZES[attempt.level].capitalize()
    source = f"the {attempt.portion} alone of" if attempt.portion else "the default configuration of"
    idle = "no inputs were found that use all of it" if attempt.partial else ""
    what = "; ".join(filter(None, (f"{size}, from {source} {model_type}", attempt.why, idle)))
    return f"{what}; -a key=value changes it."
