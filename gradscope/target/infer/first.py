"""The inputs to try first: those that need no trial to be thought of."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from gradscope.target.infer.documented import UNTOLD
from gradscope.target.infer.guess import BATCH, Candidate, Guess
from gradscope.target.infer.layers import TOKENS, pictures, wanted_by
from gradscope.target.infer.reading import first_layers, keys_of, parameters_of_forward, unpacked_into
from gradscope.target.infer.roles import MASK, Hints, annotated, is_single, usual

RANK_COST = 0.8
"""Cost of the second guess for an input against the first."""


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
    guesses = _undocumented(model, name, annotation, hints, is_first)
    if (told := hints.documented.get(name)) is not None:
        best = next(guesses)
        yield replace(told, kind=best.kind, high=best.high) if told.kind == UNTOLD else told
        yield best
    yield from guesses


def _undocumented(model: nn.Module, name: str, annotation: str, hints: Hints, is_first: bool) -> Iterator[Guess]:
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
