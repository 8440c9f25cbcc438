"""The bounded search for inputs: best guess first, learning from what each failure says."""

from __future__ import annotations

import heapq
import inspect
import itertools
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from gradscope.errors import InputsError
from gradscope.target.blame import message_of
from gradscope.target.infer.guess import BATCH, Candidate, Guess, as_batch, realise
from gradscope.target.infer.hints import read_hints
from gradscope.target.infer.layers import TOKENS, pictures, wanted_by
from gradscope.target.infer.lessons import lessons
from gradscope.target.infer.reading import first_layers, keys_of, parameters_of_forward, unpacked_into
from gradscope.target.infer.roles import MASK, Hints, annotated, is_single, usual
from gradscope.target.infer.trial import Outcome, attempt
from gradscope.target.inputs.arrange import signature_of, unwrapped
from gradscope.target.losses.leaves import named_tensors
from gradscope.target.subject import Origin

MOST_TRIALS = 120
"""Forwards that are tried at most; nearly all models that are found at all are found within twenty."""
MOST_SECONDS = 45.0
"""Time after which the search gives up."""
TRIAL_BATCH = 4
"""Samples in a trial: few, but more than BatchNorm needs, and a number that layers seldom have as a size."""
FEWEST = 2
"""Samples that BatchNorm needs at least, however dear a step is."""
BATCH_SIZES = (8, TRIAL_BATCH, FEWEST)
RANK_COST = 0.8
"""Cost of the second guess for an input against the first."""
LESSON_COST = 0.4
"""Added for every change on the way to a candidate, so that a fruitless trail gives way to other first guesses."""
MOST_GAIN, GAIN_BONUS = 20, 0.1
"""Layers more that a forward reached than before its last change, and what each takes off the cost."""
GUESS_EVERY = 3
FORWARD_FLOPS = 6e9
"""Operations of one forward that a step may have: about a second with its backward on one CPU core."""
MOST_KEPT = 100_000_000
"""Numbers that go into the layers of one forward: with what the layers keep besides, about a gigabyte."""
SHOWN_FAILURES = 3
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


@dataclass(order=True)
class _Entry:
    cost: float
    number: int
    candidate: Candidate = field(compare=False)
    progress: int = field(compare=False, default=0)


def infer_inputs(model: nn.Module, fresh: Callable[[], nn.Module | None], label: str) -> Inferred:
    """Find inputs that go through a model of which nothing else is known; see `search_inputs`."""
    own = unwrapped(model)
    return search_inputs(model, fresh, label, first_candidates(own, read_hints(own)))


def search_inputs(
    model: nn.Module,
    fresh: Callable[[], nn.Module | None],
    label: str,
    first: Iterable[tuple[float, Candidate]],
    *,
    most_trials: int = MOST_TRIALS,
    most_seconds: float = MOST_SECONDS,
    run: Callable[[Any], Outcome | None] | None = None,
) -> Inferred:
    """Find inputs that go through a model.

    Args:
        model: A scratch copy.
        fresh: Gives another one, for a model that a failed trial may have changed.
        label: The model in words.
        first: Penalties and candidates to begin with.
        most_trials: Forwards to try at most.
        most_seconds: Processor time after which the search gives up.
        run: Tries one batch on a copy, where `model` itself must not be run.

    Raises:
        InputsError: If none are found, with what was tried and what it said.
    """
    search = _Search(model, label, first, most_trials, most_seconds, run)
    second_best: Candidate | None = None
    left = MOST_AFTER_NON_FINITE
    for entry in search.candidates():
        outcome, batch = search.run(entry.candidate, TRIAL_BATCH)
        if outcome.worked and outcome.output is not None:
            if _is_finite(outcome.output):
                return _settled(search, entry.candidate, fresh)
            second_best = second_best or entry.candidate
        else:
            search.learn(entry, outcome, batch)
        left -= second_best is not None
        if not left:
            break
    if second_best is None:
        raise search.failure()
    return _settled(search, second_best, fresh)


class _Search:
    """The queue of candidates and what became of those tried."""

    def __init__(
        self,
        model: nn.Module,
        label: str,
        first: Iterable[tuple[float, Candidate]],
        most_trials: int,
        most_seconds: float,
        run: Callable[[Any], Outcome | None] | None,
    ) -> None:
        self.model, self.label = model, label
        self.hints = read_hints(unwrapped(model))
        self.positional = tuple(
            p.name
            for p in parameters_of_forward(unwrapped(model))
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
        )
        self.failures: list[tuple[Candidate, str]] = []
        self._silent: Candidate | None = None
        """What the forward ran with, and returned nothing."""
        self._guessed: list[_Entry] = []
        self._learnt: list[_Entry] = []
        self._seen: set[Candidate] = set()
        self._count = itertools.count()
        self._seconds = 0.0
        self._most_trials, self._most_seconds = most_trials, most_seconds
        self._attempt = run
        self._accepted = signature_of(model).keywords
        for penalty, candidate in first:
            self._push(self._guessed, _Entry(penalty, next(self._count), candidate))

    def _push(self, queue: list[_Entry], entry: _Entry) -> None:
        """Queue a candidate that was not queued before."""
        if entry.candidate not in self._seen and all(_is_sane(guess) for _, guess in entry.candidate):
            self._seen.add(entry.candidate)
            heapq.heappush(queue, entry)

    def candidates(self) -> Iterator[_Entry]:
        """Yield the cheapest entry, again and again, within the bounds.

        Every third one is a first guess as long as there are any: one trail of lessons may lead nowhere.
        """
        for turn in itertools.count(1):
            if len(self.failures) >= self._most_trials or self._seconds >= self._most_seconds:
                return
            queues = [queue for queue in (self._guessed, self._learnt) if queue]
            if not queues:
                return
            yield heapq.heappop(queues[0] if turn % GUESS_EVERY == 0 else min(queues))

    def run(self, candidate: Candidate, batch_size: int, *, gradients: bool = False) -> tuple[Outcome, Any]:
        """Try a candidate; a model that differentiates inside its forward is given gradients."""
        batch = as_batch(realise(candidate, batch_size), self.positional)
        if self._attempt is not None:
            outcome = self._attempt(batch) or Outcome()
        else:
            outcome = attempt(self.model, batch, gradients=gradients)
            if "grad" in str(outcome.error) and not gradients:
                outcome = attempt(self.model, batch, gradients=True)
        self._seconds += outcome.seconds
        return outcome, batch

    def learn(self, entry: _Entry, outcome: Outcome, batch: Any) -> None:
        """Queue what a failure suggests; changes that got the forward further are followed first."""
        self.failures.append((entry.candidate, message_of(outcome.error or ValueError("no output"))))
        if outcome.error is None:
            self._silent = entry.candidate
            return
        names = [name for name, _ in entry.candidate]
        inputs = batch if isinstance(batch, dict) else dict(zip(names, batch, strict=False))
        progress = len(outcome.entered)
        gain = max(-MOST_GAIN, min(progress - entry.progress, MOST_GAIN))
        for penalty, learnt in lessons(outcome, entry.candidate, self.hints, inputs, self._accepted):
            cost = entry.cost + LESSON_COST + penalty - GAIN_BONUS * gain
            self._push(self._learnt, _Entry(cost, next(self._count), learnt, progress))
        traceback.clear_frames(outcome.error.__traceback__)  # they hold the activations of the failed forward

    def failure(self) -> InputsError:
        """Say what was tried, or that the forward ran and returned nothing."""
        if self._silent is not None:
            return InputsError(
                f"The forward of {self.label} ran with {_described(self._silent, TRIAL_BATCH)} and returned no tensor.",
                rule="It has to return what the loss is computed from.",
                hint="return the output at the end of forward()",
            )
        names = ", ".join(name for name, _ in self.failures[0][0]) if self.failures else "anything"
        tried = [
            f"{_described(c, TRIAL_BATCH)}: {message}"
            for c, message in self.failures[:1] + self.failures[-SHOWN_FAILURES + 1 :]
        ]
        return InputsError(
            f"No inputs were found that {self.label} takes ({names}); {len(self.failures)} were tried.",
            rule="For instance " + "; ".join(dict.fromkeys(tried)) if tried else "",
            hint="Write them out: --input 8x128:int64:0..50257, or give --inputs file.py:function",
        )


def first_candidates(model: nn.Module, hints: Hints) -> Iterator[tuple[float, Candidate]]:
    """Yield the candidates that need no trial to be thought of: the best of each input, then others one at a time."""
    names = _inputs_to_fill(model)
    options = {
        name: list(dict.fromkeys(_options(model, name, annotation, hints, i == 0)))
        for i, (name, annotation) in enumerate(names)
    }
    if not options:
        yield 0.0, ()
        return
    best = {name: guesses[0] for name, guesses in options.items()}
    yield 0.0, tuple(best.items())
    for name, guesses in options.items():
        for rank, guess in enumerate(guesses[1:], 1):
            yield RANK_COST * rank, tuple({**best, name: guess}.items())
    masks = [name for name in options if MASK.search(name)]
    for rank in range(1, max((len(options[name]) for name in masks), default=0) if len(masks) > 1 else 0):
        alike = {name: options[name][rank] for name in masks if rank < len(options[name])}
        yield RANK_COST / 2 * rank, tuple({**best, **alike}.items())


def _inputs_to_fill(model: nn.Module) -> list[tuple[str, str]]:
    """The inputs that must be given, by name and annotation; of a forward where all are optional, the first."""
    parameters = parameters_of_forward(model)
    plain = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    needed = [p for p in plain if p.default is p.empty] or plain[:1]
    if not needed and any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return [(next(p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "")]
    return [(p.name, _written(p)) for p in needed]


def _written(parameter: inspect.Parameter) -> str:
    """Return an annotation as it stands in the source."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _options(model: nn.Module, name: str, annotation: str, hints: Hints, is_first: bool) -> Iterator[Guess]:
    """What one input may be, best first."""
    if keys := keys_of(model, name):
        yield Guess("dict", parts=tuple((key, next(_simple(model, key, "", hints, False))) for key in keys))
    if parts := unpacked_into(model, name):
        yield Guess(
            "tuple", parts=tuple((part, next(_simple(model, part, "", hints, i == 0))) for i, part in enumerate(parts))
        )
    yield from _simple(model, name, annotation, hints, is_first)


def _simple(model: nn.Module, name: str, annotation: str, hints: Hints, is_first: bool) -> Iterator[Guess]:
    consumers = list(itertools.islice(first_layers(model, name), 4))
    if any(isinstance(m, nn.Embedding) for m in consumers[:1]):
        ids = [_shortened(g, hints) for g in wanted_by(consumers[0])]
        yield from reversed(ids) if is_single(name) else ids
    yield from annotated(name, annotation)
    if MASK.search(name.lower()):
        yield from usual(name, hints)
    yield from (_shortened(g, hints) for m in consumers for g in itertools.islice(wanted_by(m), 3))
    yield from usual(name, hints)
    if is_first:
        first = next(
            (m for m in model.modules() if next(m.children(), None) is None and any(True for _ in wanted_by(m))), None
        )
        yield from (_shortened(g, hints) for g in (itertools.islice(wanted_by(first), 3) if first is not None else ()))
    yield from _anything(hints)


def _shortened(guess: Guess, hints: Hints) -> Guess:
    """Keep sequences within what the model says it takes, and pictures at the side it says."""
    shape = guess.shape
    if len(shape) > 1 and shape[1] == TOKENS and hints.tokens < TOKENS:
        return Guess(guess.kind, (shape[0], hints.tokens, *shape[2:]), guess.high)
    if len(shape) == 4 and hints.side:  # noqa: PLR2004  # B x C x H x W
        return pictures(2, shape[1], hints.side)
    return guess


def _anything(hints: Hints) -> Iterator[Guess]:
    """Kinds of input to try when nothing else is known."""
    width = hints.width or 64
    if hints.vocab and not hints.channels:
        yield Guess("ids", (BATCH, hints.tokens), high=hints.vocab)
    if hints.channels:
        yield pictures(2, hints.channels, hints.side or 32)
    yield Guess("float", (BATCH, width))
    yield Guess("float", (BATCH, hints.tokens, width))
    yield Guess("unit", (BATCH,))
    yield Guess("ids", (BATCH,), high=max(hints.classes, 2))


def _settled(search: _Search, candidate: Candidate, fresh: Callable[[], nn.Module | None]) -> Inferred:
    """Settle the batch size: the largest usual one that a step can afford and that goes through as well."""
    cost = _cost(search, candidate)
    affordable = [size for size in BATCH_SIZES if cost * size <= 1.0 or size == FEWEST]
    for size in dict.fromkeys((*affordable, TRIAL_BATCH, 1)):
        search.model = fresh() or search.model
        outcome, batch = search.run(candidate, size, gradients=True)
        if outcome.worked:
            return Inferred(batch, _origin(candidate, size), outcome)
    return Inferred(batch, _origin(candidate, TRIAL_BATCH), outcome)


def _cost(search: _Search, candidate: Candidate) -> float:
    """Return the share of what a step may cost that one sample takes.

    Counted in operations and in numbers kept for the backward, so that every machine decides alike.
    """
    with FlopCounterMode(display=False) as counter:
        outcome, _ = search.run(candidate, TRIAL_BATCH)
    operations = float(counter.get_total_flops())
    kept = sum(entered.num_elements for entered in outcome.entered)
    return max(operations / FORWARD_FLOPS, kept / MOST_KEPT) / TRIAL_BATCH


def _origin(candidate: Candidate, batch_size: int) -> Origin:
    return Origin(
        f"{_described(candidate, batch_size)}, inferred from the model; --input or --inputs gives yours", synthetic=True
    )


def _described(candidate: Candidate, batch_size: int) -> str:
    return ", ".join(f"{name} = {guess.describe(batch_size)}" for name, guess in candidate) or "no inputs"


def _is_finite(output: Any) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for _, tensor in named_tensors(output) if tensor.is_floating_point())


def _is_sane(guess: Guess) -> bool:
    """Whether a guess is of a size that a trial may have."""
    most = 2**26  # numbers in one input of a trial: 256 MB
    return torch.Size(dim or TRIAL_BATCH for dim in guess.shape).numel() <= most and all(
        dim >= 0 for dim in guess.shape
    )
