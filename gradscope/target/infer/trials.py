"""The queue of candidates for inputs, what became of those tried, and what to try next."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from torch import nn

from gradscope.errors import InputsError
from gradscope.target.blame import message_of
from gradscope.target.infer.first import optional_shells, written
from gradscope.target.infer.guess import TRIAL_BATCH, Candidate, assembled, described, flat, is_sane
from gradscope.target.infer.hints import read_hints
from gradscope.target.infer.last_resorts import last_resorts
from gradscope.target.infer.lessons import lessons
from gradscope.target.infer.making import as_batch, values_of
from gradscope.target.infer.memory import bounded
from gradscope.target.infer.own_fault import is_own_fault
from gradscope.target.infer.reading import parameters_of_forward
from gradscope.target.infer.roles import with_fewer_labels
from gradscope.target.infer.trial import Outcome, attempt
from gradscope.target.infer.where import Lines, is_later, lines_of
from gradscope.target.inputs.arrange import signature_of, unwrapped
from gradscope.target.stage import announce

LESSON_COST = 0.4
"""Added for every change on the way to a candidate, so that a fruitless trail gives way to other first guesses."""
MOST_GAIN, GAIN_BONUS = 20, 0.1
"""Layers more that a forward reached than before its last change, and what each takes off the cost."""
LINE_BONUS = 0.4
"""What a change takes off that led to an error on a later line in front of all layers: a check was passed."""
GUESS_EVERY = 3
"""Trials (count) of which one is a first guess, whatever has been learnt."""
SHARE_OF_SEVERAL, SHARE_OF_ONE = 0.2, 0.4
"""Share of the time of a search that a trial may take on several samples, and on one; smaller inputs get the rest."""
MOST_OWN_FAULTS = 4
"""Trials (count) that show a model to lack something of its own, before it is given up."""
SHOWN_FAILURES = 3
"""Failures that an error quotes."""


@dataclass(order=True)
class Entry:
    """A candidate in the queue; the cheapest is tried first."""

    cost: float
    number: int
    candidate: Candidate = field(compare=False)
    progress: int = field(compare=False, default=0)
    lines: Lines = field(compare=False, default=())


class NothingFitsError(InputsError):
    """No inputs were found.

    Args:
        what: What was wrong.
        rule: What was tried, and what that said.
        hint: The next command to type.
        candidate: The inputs that got furthest.
        message: What was raised there.
        progress: Layers (count) that were reached.
        is_own: Whether no inputs mend what was raised there.
    """

    def __init__(
        self,
        what: str,
        *,
        rule: str = "",
        hint: str = "",
        candidate: Candidate = (),
        message: str = "",
        progress: int = 0,
        is_own: bool = False,
    ) -> None:
        super().__init__(what, rule=rule, hint=hint)
        self.candidate, self.message, self.progress, self.is_own = candidate, message, progress, is_own


class _Furthest(NamedTuple):
    """The trial that got furthest; see `NothingFitsError`."""

    candidate: Candidate = ()
    message: str = ""
    progress: int = -1
    is_own: bool = False


class Trials:
    """The queue of candidates and what became of those tried."""

    def __init__(
        self,
        model: nn.Module,
        label: str,
        first: Iterable[tuple[float, Candidate]],
        most_trials: int,
        most_seconds: float,
        run: Callable[[Any], Outcome | None] | None,
        *,
        is_last: bool = False,
    ) -> None:
        self._is_last = is_last
        self.model, self.label = model, label
        hints = read_hints(unwrapped(model))
        parameters = parameters_of_forward(unwrapped(model))
        self.hints = replace(
            hints,
            shells=optional_shells(unwrapped(model), hints),
            annotations={p.name: written(p) for p in parameters},
            takes_any=any(p.kind is p.VAR_KEYWORD for p in parameters),
        )
        self.positional = tuple(
            p.name
            for p in parameters
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
        )
        self.values: dict[str, Any] = {}
        """The tensors of the last trial, by name."""
        self.failures: list[tuple[Candidate, str]] = []
        self._furthest = _Furthest()
        self._silent: Candidate | None = None
        """What the forward ran with, and returned nothing."""
        self._own_faults = 0
        self._guessed: list[Entry] = []
        self._learnt: list[Entry] = []
        self._seen: dict[Candidate, float] = {}
        """The least cost at which each candidate was queued; minus infinity once it is tried."""
        self._count = itertools.count()
        self._seconds = 0.0
        self._most_trials, self._most_seconds = most_trials, most_seconds
        self._attempt = run
        self.samples = TRIAL_BATCH
        """Samples of a trial's batch; fewer once a forward was too slow."""
        self.accepted = signature_of(model).keywords
        for penalty, candidate in first:
            self._push(self._guessed, Entry(penalty, next(self._count), candidate))

    def _push(self, queue: list[Entry], entry: Entry) -> None:
        """Queue a candidate that was not tried before, nor queued for less."""
        entry.candidate = flat(entry.candidate)
        is_new = entry.cost < self._seen.get(entry.candidate, math.inf)
        if is_new and is_sane(entry.candidate):
            self._seen[entry.candidate] = entry.cost
            heapq.heappush(queue, entry)

    def candidates(self) -> Iterator[Entry]:
        """Yield the cheapest entry, again and again, within the bounds.

        Every third one is a first guess as long as there are any: one trail of lessons may lead nowhere.
        """
        for turn in itertools.count(1):
            if len(self.failures) >= self._most_trials or self.is_late or self._own_faults >= MOST_OWN_FAULTS:
                return
            queues = [queue for queue in (self._guessed, self._learnt) if queue]
            if not queues:
                return
            entry = heapq.heappop(queues[0] if turn % GUESS_EVERY == 0 else min(queues))
            if self._seen[entry.candidate] != -math.inf:
                self._seen[entry.candidate] = -math.inf
                yield entry

    @property
    def is_late(self) -> bool:
        """Whether the time of the search is used up."""
        return self._seconds >= self._most_seconds

    def probe(self, candidate: Candidate) -> Outcome:
        """Try a candidate on a few samples, and on fewer from now on where they are too many for time or memory."""
        while True:
            limit = self._most_seconds * (SHARE_OF_SEVERAL if self.samples > 1 else SHARE_OF_ONE)
            outcome, _ = self.run(candidate, self.samples, most_seconds=limit)
            if not outcome.too_much or self.samples == 1:
                return outcome
            outcome.forget()
            self.samples //= 2

    def run(
        self, candidate: Candidate, batch_size: int, *, gradients: bool = False, most_seconds: float = math.inf
    ) -> tuple[Outcome, Any]:
        """Try a candidate; a model that differentiates inside its forward is given gradients."""
        try:
            self.values = values_of(candidate, batch_size)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:  # too large, or of no possible shape
            self.values = {}
            return Outcome(error=error), None
        batch = as_batch(assembled(candidate, self.values), self.positional)
        announce(f"looking for inputs, {len(self.failures)} tried")
        with bounded():
            if self._attempt is not None:
                outcome = self._attempt(batch) or Outcome()
            else:
                outcome = attempt(self.model, batch, gradients=gradients, most_seconds=most_seconds)
                if "grad" in str(outcome.error) and not gradients:
                    outcome = attempt(self.model, batch, gradients=True, most_seconds=most_seconds)
        self._seconds += outcome.seconds
        return outcome, batch

    def learn(self, entry: Entry, outcome: Outcome) -> None:
        """Queue what the failure of the last trial suggests; changes that got the forward further come first."""
        self.failures.append((entry.candidate, message_of(outcome.error or ValueError("no output"))))
        if outcome.error is None:
            self._silent = entry.candidate
            return
        progress, is_own = len(outcome.entered), is_own_fault(outcome.error, entry.candidate)
        taught = [] if is_own else list(lessons(outcome, entry.candidate, self.hints, self.values, self.accepted))
        if progress > self._furthest.progress:
            smaller = taught[0][1] if outcome.too_much and taught else entry.candidate
            self._furthest = _Furthest(smaller, str(outcome.error), progress, is_own)
        if is_own:
            self._own_faults += 1
            outcome.forget()
            return
        if progress >= self._furthest.progress:  # others get as far without a fault of the model's own
            self._own_faults = 0
        gain = max(-MOST_GAIN, min(progress - entry.progress, MOST_GAIN))
        lines = lines_of(outcome.error)
        bonus = GAIN_BONUS * gain + (LINE_BONUS if not progress and is_later(lines, entry.lines) else 0.0)
        more = last_resorts(outcome, entry.candidate) if self._is_last else ()
        for penalty, learnt in itertools.chain(more, taught):
            cost = entry.cost + LESSON_COST + penalty - bonus
            self._push(self._learnt, Entry(cost, next(self._count), learnt, progress, lines))
        outcome.forget()

    def shorten(self, entry: Entry) -> None:
        """Queue a candidate that gave no finite loss with fewer labels: CTC takes no more of them than steps."""
        shorter = with_fewer_labels(entry.candidate)
        if shorter != entry.candidate:
            self._push(self._learnt, replace(entry, number=next(self._count), candidate=shorter))

    def failure(self) -> InputsError:
        """Say what was tried, or that the forward ran and returned nothing."""
        if self._silent is not None:
            return InputsError(
                f"The forward of {self.label} ran with {described(self._silent, TRIAL_BATCH)} and returned no tensor.",
                rule="It has to return what the loss is computed from.",
                hint="return the output at the end of forward()",
            )
        names = ", ".join(name for name, _ in self.failures[0][0]) if self.failures else "anything"
        tried = [
            f"{described(c, TRIAL_BATCH)}: {message}"
            for c, message in self.failures[:1] + self.failures[-SHOWN_FAILURES + 1 :]
        ]
        return NothingFitsError(
            f"No inputs were found that {self.label} takes ({names}); {len(self.failures)} were tried.",
            rule="For instance " + "; ".join(dict.fromkeys(tried)) if tried else "",
            hint="Write them out: --input 8x128:int64:0..50257, or give --inputs file.py:function",
            **self._furthest._asdict(),
        )
