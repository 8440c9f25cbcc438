"""The bounded search for inputs: best guess first, learning from what each failure says."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from gradscope.errors import InputsError
from gradscope.target.infer.changes import Lesson
from gradscope.target.infer.first import first_candidates
from gradscope.target.infer.guess import TRIAL_BATCH, Candidate, described
from gradscope.target.infer.hints import read_hints
from gradscope.target.infer.lessons import lessons
from gradscope.target.infer.trial import Outcome, TooSlowError
from gradscope.target.infer.trials import NothingFitsError, Trials
from gradscope.target.infer.whole import Extend, extended, filled, turned, without_silencers
from gradscope.target.inputs.arrange import unwrapped
from gradscope.target.losses.leaves import named_tensors
from gradscope.target.subject import Origin

MOST_TRIALS = 120
"""Forwards that are tried at most; nearly all models that are found at all are found within twenty."""
MOST_SECONDS = 45.0
"""Time of forwards after which the search gives up."""
LAST_SECONDS = 10.0
"""Time of forwards of a second search, where the first has failed."""
FEWEST = 2
"""Samples that BatchNorm needs at least, however dear a step is."""
BATCH_SIZES = (8, TRIAL_BATCH, FEWEST)
"""Samples of a batch, as many as a step can afford."""
FORWARD_FLOPS = 6e9
"""Operations of one forward that a step may have: about a second with its backward on one CPU core."""
MOST_KEPT = 100_000_000
"""Numbers that go into the layers of one forward: with what the layers keep besides, about a gigabyte."""
MOST_AFTER_NON_FINITE = 12
"""Candidates tried after one that gave NaN, as a mask the wrong way round does, before the model is to blame."""


@dataclass(frozen=True)
class Inferred:
    """Inputs that work.

    Attributes:
        batch: The batch.
        origin: What it is, in words.
        outcome: The forward on it.
    """

    batch: Any
    origin: Origin
    outcome: Outcome


def infer_inputs(model: nn.Module, fresh: Callable[[], nn.Module | None], label: str) -> Inferred:
    """Find inputs that go through a model of which nothing else is known; see `search_inputs`."""
    own = unwrapped(model)
    hints = read_hints(own)
    try:
        return search_inputs(model, fresh, label, first_candidates(own, hints))
    except NothingFitsError as error:
        failure = error.with_traceback(None)  # its frames hold the copy that was run
    again = itertools.chain([(0.0, failure.candidate)], first_candidates(own, hints))
    try:
        return search_inputs(fresh() or model, fresh, label, again, most_seconds=LAST_SECONDS, is_last=True)
    except InputsError:
        raise failure from None


def search_inputs(
    model: nn.Module,
    fresh: Callable[[], nn.Module | None],
    label: str,
    first: Iterable[tuple[float, Candidate]],
    *,
    most_trials: int = MOST_TRIALS,
    most_seconds: float = MOST_SECONDS,
    run: Callable[[Any], Outcome | None] | None = None,
    extend: Extend = lambda candidate: (),
    is_last: bool = False,
) -> Inferred:
    """Find inputs that go through a model.

    Args:
        model: A scratch copy.
        fresh: Gives another one, for a model that a failed trial may have changed.
        label: The model in words.
        first: Penalties and candidates to begin with.
        most_trials: Forwards to try at most.
        most_seconds: Time of forwards after which the search gives up.
        run: Tries one batch on a copy, where `model` itself must not be run.
        extend: What else the model may be given, where inputs that work leave a part of it idle.
        is_last: Whether another search has failed, so that last resorts are tried as well.

    Raises:
        InputsError: If none are found, with what was tried and what it said.
    """
    search = Trials(model, label, first, most_trials, most_seconds, run, is_last=is_last)
    second_best: Candidate | None = None
    left = MOST_AFTER_NON_FINITE
    for entry in search.candidates():
        outcome = search.probe(entry.candidate)
        if outcome.worked and outcome.output is not None:
            if _is_finite(outcome.output):
                return _settled(search, entry.candidate, fresh, extend)
            second_best = second_best or entry.candidate
            search.shorten(entry)
        else:
            search.learn(entry, outcome)
        left -= second_best is not None
        if not left:
            break
    if second_best is None:
        raise search.failure()
    return _settled(search, second_best, fresh, extend)


def _settled(
    search: Trials, candidate: Candidate, fresh: Callable[[], nn.Module | None], extend: Extend
) -> Inferred:
    """Settle what else to fill, and the batch size: the largest usual one that a step can afford and that works."""
    candidate = _whole(search, candidate, extend)
    cost = _cost(search, candidate)
    affordable = [size for size in BATCH_SIZES if cost * size <= 1.0 or size == min(FEWEST, search.samples)]
    for size in dict.fromkeys((*affordable, search.samples, 1)):
        search.model = fresh() or search.model
        outcome, batch = search.run(candidate, size, gradients=True)
        if outcome.worked:
            return Inferred(batch, _origin(candidate, size), outcome)
        outcome.forget()
    return Inferred(batch, _origin(candidate, size), outcome)


def _whole(search: Trials, candidate: Candidate, extend: Extend) -> Candidate:
    """Add what parts of the model wait for, turn masks round, leave out what silences the loss."""

    def run(trial: Candidate) -> Outcome:
        if search.is_late:
            return Outcome(error=TooSlowError())
        return search.run(trial, search.samples, gradients=True)[0]

    def teach(outcome: Outcome, trial: Candidate) -> list[Lesson]:
        return list(lessons(outcome, trial, search.hints, search.values, search.accepted))

    model = unwrapped(search.model)
    candidate = extended(candidate, run, teach, extend)
    return without_silencers(model, turned(filled(model, search.hints, candidate, run, teach), run), run)


def _cost(search: Trials, candidate: Candidate) -> float:
    """Return the share of what a step may cost that one sample takes.

    Counted in operations and in numbers kept for the backward, so that every machine decides alike.
    """
    with FlopCounterMode(display=False) as counter:
        outcome, _ = search.run(candidate, search.samples)
    operations = float(counter.get_total_flops())
    kept = sum(entered.num_elements for entered in outcome.entered)
    return max(operations / FORWARD_FLOPS, kept / MOST_KEPT) / search.samples


def _origin(candidate: Candidate, batch_size: int) -> Origin:
    return Origin(
        f"{described(candidate, batch_size)}, inferred from the model; --input or --inputs gives yours", synthetic=True
    )


def _is_finite(output: Any) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for _, tensor in named_tensors(output) if tensor.is_floating_point())
