"""The order in which classes and sizes of a model type are tried."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gradscope.target.hf.attempt import NOT_CALLED, Attempt
from gradscope.target.hf.guesses import feeds_several
from gradscope.target.hf.prepare import Prepared
from gradscope.target.hf.shrink import IN_STEP, LEVELS, SAME_WIDTHS, SMALL

MOST_CLASSES = 3
"""Classes of a model type that are tried: of those of the whole, and of those of a part of it."""
MANY_PARAMETERS, LESS = 30_000_000, 3
"""More parameters make a miniature slow to step and to look for inputs of; what a smaller one must be smaller by."""
WHOLE_LEVELS = (SMALL, SAME_WIDTHS, IN_STEP)
"""Levels at which inputs for all of a model of several kinds of input are looked for."""
Prepare = Callable[[Any, int], Prepared]
"""Takes a class and a level."""


def in_turn(wholes: list[Any], portions: Mapping[Any, str], prepare: Prepare) -> Iterator[Iterator[Attempt]]:
    """Yield the attempts at all of a type, then at the whole with a part idle, then at a part of it.

    Args:
        wholes: The classes of the whole.
        portions: The classes that a part of a configuration builds, with its name; alone where the user asked for one.
        prepare: Gives the configuration of a class and a level.
    """
    wholes, parts = wholes[:MOST_CLASSES], list(portions)[:MOST_CLASSES]
    why = NOT_CALLED if wholes else ""
    of_parts = (replace(attempt, portion=portions[attempt.cls], why=why) for attempt in _everything(parts, prepare))
    if not wholes:
        yield of_parts
    elif not parts:
        yield _everything(wholes, prepare)
    else:
        yield from (_fed_all(wholes, prepare), leaving_idle(wholes, prepare), of_parts)


def _everything(classes: list[Any], prepare: Prepare) -> Iterator[Attempt]:
    """Yield all attempts at some classes; a model of several kinds of input is first fed all of them."""
    return itertools.chain(_fed_all(classes, prepare), leaving_idle(classes, prepare))


def _fed_all(classes: list[Any], prepare: Prepare) -> Iterator[Attempt]:
    """Yield everything small first, then depth alone."""
    for level in LEVELS:
        for cls in classes:
            if level in WHOLE_LEVELS or not feeds_several(cls):
                yield from (Attempt(cls, each, partial=False) for each in _in_order(cls, level, prepare))


def leaving_idle(classes: list[Any], prepare: Prepare) -> Iterator[Attempt]:
    """Yield the attempts at models of several kinds of input that are fed one of them."""
    for level in LEVELS:
        for cls in classes:
            if feeds_several(cls):
                yield from (Attempt(cls, each, partial=True) for each in _in_order(cls, level, prepare))


def _in_order(cls: Any, level: int, prepare: Prepare) -> tuple[int, ...]:
    """Return a level, with widths in step before a miniature that is still large: convolutions keep theirs in it."""
    if level not in (SMALL, IN_STEP):
        return (level,)
    try:
        small, in_step = (prepare(cls, each).num_parameters or 0 for each in (SMALL, IN_STEP))
    except Exception:  # what is wrong with a configuration is told where it is tried
        return (level,)
    if small <= MANY_PARAMETERS or small < LESS * in_step:
        return (level,)
    return (IN_STEP, SMALL) if level == SMALL else ()
