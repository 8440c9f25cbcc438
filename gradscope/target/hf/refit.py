"""Make the sizes of a configuration agree that a forward of its model shows not to: a layer gets more than it wants.

A composite tells its neck how wide the maps of its backbone are; where the two disagree no input helps.
"""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from gradscope.target.draws import Draws
from gradscope.target.hf.attempt import Attempt, Settled, inputs_of, note_of
from gradscope.target.hf.repair import built
from gradscope.target.hf.settings import all_parts, constructor_values, named_parts, read_setting
from gradscope.target.infer.guess import TRIAL_BATCH, Candidate, assembled
from gradscope.target.infer.making import values_of
from gradscope.target.infer.memory import bounded
from gradscope.target.infer.search import Inferred
from gradscope.target.infer.sizes import pairs_in
from gradscope.target.infer.trial import Outcome, attempt
from gradscope.target.infer.trials import NothingFitsError
from gradscope.target.infer.where import Lines, is_later, lines_of

MOST_CHANGES = 8
"""Settings that are changed, one after the other: a neck has one width for each map of a backbone."""
MOST_TRIES = 20
"""Settings that are tried for one change."""
MOST_REFITTED = 2
"""Attempts (count) whose sizes are made to agree where none goes through as it is."""
MOST_SECONDS = 8.0
"""Processor time after which no further setting is tried: a large model takes seconds to be built."""
FEWEST_ENTERED = 2
"""Layers that a forward has to reach: what the first one wants is a matter of the inputs."""


@dataclass(frozen=True)
class Refitted:
    """A configuration whose model a forward goes further through.

    Attributes:
        config: The configuration.
        changed: Which settings were changed, and to what, in words.
    """

    config: Any
    changed: str


@dataclass(frozen=True)
class Change:
    """A configuration with one setting changed; the setting's name with the parts it is in, and its new value."""

    config: Any
    name: str
    value: Any


Changes = Callable[[Any, str], Iterable[Change]]
"""Takes a configuration and what a forward of its model raised; gives what may be changed."""


def settled_refitted(
    stuck: Iterable[tuple[Attempt, Any, NothingFitsError]], changes: Changes, model_type: str, label: str
) -> Settled | None:
    """Settle on a configuration whose sizes are made to agree; every model is built from the present random numbers."""
    draws = Draws()
    for trial, config, failure in itertools.islice(stuck, MOST_REFITTED):
        fitting = refitted(trial.cls, config, failure, changes)
        draws.again()
        if fitting is not None:
            model = built(trial.cls, fitting.config)
            if isinstance(found := inputs_of(model, trial, fitting.config, label), Inferred):
                said = f"Its sizes do not fit together by default: {fitting.changed} was set."
                return Settled(model, found, (note_of(trial, model_type), said))
            draws.again()
    return None


def refitted(
    cls: Callable[[Any], nn.Module], config: Any, failure: NothingFitsError, changes: Changes
) -> Refitted | None:
    """Change sizes that disagree as long as the inputs that got furthest get further; None where none does that."""
    message, progress, lines, started = failure.message, failure.progress, None, time.process_time()
    set_to: dict[str, Any] = {}
    for _ in range(MOST_CHANGES if progress >= FEWEST_ENTERED else 0):
        left = MOST_SECONDS - (time.process_time() - started)
        if (found := _further(cls, changes(config, message), progress, lines, failure.candidate, left)) is None:
            break
        change, outcome = found
        lines = lines_of(outcome.error) if outcome.error is not None else None
        config, message, progress = change.config, str(outcome.error), len(outcome.entered)
        set_to[change.name] = change.value
        if outcome.worked:
            break
    return Refitted(config, ", ".join(f"{name} = {value}" for name, value in set_to.items())) if set_to else None


def _further(
    cls: Callable[[Any], nn.Module],
    changes: Iterable[Change],
    progress: int,
    lines: Lines | None,
    candidate: Candidate,
    most_seconds: float,
) -> tuple[Change, Outcome] | None:
    """Return the first change of a configuration that lets a forward get further than so many layers and lines."""
    started = time.process_time()
    for change in itertools.islice(changes, MOST_TRIES):
        if time.process_time() - started > most_seconds:
            return None
        outcome = _run(cls, change.config, candidate)
        if outcome is not None and (outcome.error is None or _is_further(outcome, outcome.error, progress, lines)):
            return change, outcome
    return None


def _is_further(outcome: Outcome, error: BaseException, progress: int, lines: Lines | None) -> bool:
    """Whether a forward that failed went through more layers, or through as many and to a later line."""
    passed = _passed(outcome)
    return passed > progress or (passed == progress and (lines is None or is_later(lines_of(error), lines)))


def _passed(outcome: Outcome) -> int:
    """Return how many layers a failed forward went through; the one that it failed in was only reached."""
    return len(outcome.entered) - any(outcome.failed_in is last for last in outcome.entered[-1:])


def _run(cls: Callable[[Any], nn.Module], config: Any, candidate: Candidate) -> Outcome | None:
    """Return what comes of a forward; None where the model cannot even be built."""
    try:
        model = built(cls, copy.deepcopy(config))
    except Exception:  # sizes that do not fit raise anything
        return None
    with bounded():
        return attempt(model, assembled(candidate, values_of(candidate, TRIAL_BATCH)), gradients=False)


def other_sizes(config: Any, message: str) -> Iterator[Change]:
    """Yield the changes of one setting that may be behind a misfit."""
    for got, want in dict.fromkeys(pairs_in(message)):
        for rank, (path, owner) in enumerate(named_parts(config)):
            for name, value in constructor_values(owner).items():
                for new in _instead(value, got, want, _same_named(config, owner, name)):
                    changed = copy.deepcopy(config)
                    setattr(list(all_parts(changed))[rank], name, new)
                    yield Change(changed, path + name, new)


def _instead(value: Any, got: int, want: int, elsewhere: set[int]) -> Iterator[Any]:
    """Yield what a setting may be instead: the size that is there, or what it is elsewhere if that makes up for it."""
    if type(value) is int:
        if value == want:
            yield got
        if value + got - want in elsewhere:
            yield value + got - want
    elif isinstance(value, list | tuple) and all(type(number) is int for number in value):
        for rank, number in enumerate(value):
            if number == want:
                yield [*value[:rank], got, *value[rank + 1 :]]


def _same_named(config: Any, owner: Any, name: str) -> set[int]:
    """Return the sizes that a setting of that name has in the other parts of a configuration."""
    values = (read_setting(part, name) for part in all_parts(config) if part is not owner)
    return {value for value in values if type(value) is int}
