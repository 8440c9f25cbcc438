"""The inputs to try first: those that need no trial to be thought of."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace

from torch import nn

from gradscope.target.infer.changes import with_guess
from gradscope.target.infer.documented import UNTOLD, documented_fields
from gradscope.target.infer.guess import BATCH, Candidate, Guess
from gradscope.target.infer.layers import TOKENS, pictures, wanted_by
from gradscope.target.infer.loops import paired_layers, step_axis
from gradscope.target.infer.opening import opened
from gradscope.target.infer.reading import classes_of, first_layers, keywords_of, parameters_of_forward
from gradscope.target.infer.roles import (
    ATTENDED,
    COUNTS,
    EDGE_VALUES,
    GRIDS,
    LENGTHS,
    MASK,
    PATCHES,
    Hints,
    along_edges,
    annotated,
    is_one_a_sample,
    is_single,
    usual,
)

SHAPED = ("float", "ids", "unit", "mask", "trues", "bools")
"""Kinds of input of which nothing but the shape is to be settled."""
ALIKE = 2
"""Inputs of which so many first guesses agree are taken for several of one kind."""
SOME = 2
"""Boxes, words or the like that a record holds."""
SEQUENCE = 3
"""Axes of a sequence of vectors."""
RANK_COST = 0.8
"""Cost of the second guess for an input against the first."""


def first_candidates(model: nn.Module, hints: Hints) -> Iterator[tuple[float, Candidate]]:
    """Yield the candidates that need no trial to be thought of: the best of each input, then others one at a time."""
    options: dict[str, list[Guess]] = {}
    shells: dict[str, list[Guess]] = {}
    for i, parameter in enumerate(_inputs_to_fill(model)):
        name, annotation = parameter.name, written(parameter)
        shell, parts = _in_parts(model, parameter, hints, i == 0)
        whole = list(dict.fromkeys(_simple(model, (name,), annotation, hints, i == 0)))
        options[name] = [shell] if shell is not None else whole
        if shell is not None:
            shells[name] = whole
        options |= {f"{name}.{key}": guesses for key, guesses in parts.items()}
    for key, expression in keywords_of(model):
        options[key] = list(dict.fromkeys(_simple(model, (key, expression), "", hints, not options)))
    if not options:
        yield 0.0, ()
        return
    best = {name: guesses[0] for name, guesses in options.items()}
    yield 0.0, tuple(best.items())
    if any(GRIDS.search(name) for name in best):
        yield from ((RANK_COST / 2, in_patches) for in_patches in _in_patches(tuple(best.items())))
    for name, guesses in options.items():
        for rank, guess in enumerate(guesses[1:], 1):
            yield RANK_COST * rank, tuple({**best, name: guess}.items())
    for name, guesses in shells.items():  # perhaps it is a tensor after all
        rest = {n: g for n, g in best.items() if not n.startswith(f"{name}.")}
        yield from ((RANK_COST * rank, tuple({**rest, name: guess}.items())) for rank, guess in enumerate(guesses, 1))
    for names in _alike(options):
        for rank in range(1, max(len(options[name]) for name in names)):
            alike = {name: options[name][rank] for name in names if rank < len(options[name])}
            yield RANK_COST / 2 * rank, tuple({**best, **alike}.items())


def _in_patches(candidate: Candidate) -> Iterator[Candidate]:
    """Yield a candidate with the pictures of a batch cut into patches, all in one axis: a grid says how many."""
    for name, guess in candidate:
        if guess.kind == "float" and len(guess.shape) > 1:
            inside = guess.shape[1:] if len(guess.shape) != SEQUENCE else guess.shape[2:]
            yield with_guess(candidate, name, replace(guess, kind="patches", shape=(BATCH, PATCHES**2, *inside)))


def _alike(options: Mapping[str, list[Guess]]) -> Iterator[list[str]]:
    """Yield the inputs that are of one kind: all masks, and those that may be the same, as two views of a picture."""
    groups: dict[tuple[Guess, ...], list[str]] = {}
    for name, guesses in options.items():
        groups.setdefault(tuple(guesses[:ALIKE]), []).append(name)
    masks = [name for name in options if MASK.search(name)]
    yield from (names for names in (masks, *groups.values()) if len(names) > 1)


def optional_shells(model: nn.Module, hints: Hints) -> dict[str, Guess]:
    """Return the inputs that hold others among those that may be left out, each with the best guess for every part."""
    found: dict[str, Guess] = {}
    for parameter in parameters_of_forward(model):
        if parameter.default is not parameter.empty:
            shell, parts = _in_parts(model, parameter, hints, False)
            if shell is not None and parts:
                found[parameter.name] = replace(shell, parts=tuple((key, each[0]) for key, each in parts.items()))
    return found


def _in_parts(
    model: nn.Module, parameter: inspect.Parameter, hints: Hints, is_first: bool
) -> tuple[Guess | None, dict[str, list[Guess]]]:
    """Return the shell of an input that holds others, and what each of its parts may be."""
    shell, parts = opened(model, parameter)
    if layers := paired_layers(model, parameter.name):
        each = [[_shortened(g, hints) for g in itertools.islice(wanted_by(layer), 3)] for layer in layers]
        return Guess("tuple"), {str(rank): guesses for rank, guesses in enumerate(each) if guesses}
    if shell is not None and isinstance(shell.value, type):
        hints = replace(hints, documented={**hints.documented, **documented_fields(shell.value, hints.sizes)})
    found: dict[str, list[Guess]] = {}
    for rank, (key, written, expressions) in enumerate(parts):
        part = list(_simple(model, (key, *expressions), written, hints, is_first and rank == 0))
        if shell is not None and shell.kind == "records":  # each sample has some of them
            part = [replace(g, shape=(BATCH, SOME)) if g.shape == (BATCH,) else g for g in part]
        found[key] = list(dict.fromkeys(part))
    return shell, found


def _inputs_to_fill(model: nn.Module) -> list[inspect.Parameter]:
    """The inputs that must be given; of a forward where all are optional, the first."""
    parameters = parameters_of_forward(model)
    plain = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    needed = [p for p in plain if p.default is p.empty] or plain[:1]
    return needed or [p for p in parameters if p.kind is p.VAR_POSITIONAL][:1]


def written(parameter: inspect.Parameter) -> str:
    """Return an annotation as it stands in the source."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def guesses_for(model: nn.Module, parameter: inspect.Parameter, hints: Hints) -> Iterator[Guess]:
    """Yield what one input may be, best first."""
    yield from _simple(model, (parameter.name,), written(parameter), hints, False)


def _simple(
    model: nn.Module, names: tuple[str, ...], annotation: str, hints: Hints, is_first: bool
) -> Iterator[Guess]:
    """What one input may be, best first; `names` are its name and how forward writes it where it is part of another."""
    guesses = _undocumented(model, names, annotation, hints, is_first)
    if GRIDS.search(names[0]):  # how many there are of each is told, and not that they must be as many as there are
        yield from usual(names[0], hints)
    if (told := hints.documented.get(names[0])) is not None:
        best = next(guesses)
        if told.kind != UNTOLD:
            yield told
        elif best.kind in SHAPED:
            yield replace(best, shape=told.shape)
        yield best
    yield from guesses


def _undocumented(
    model: nn.Module, names: tuple[str, ...], annotation: str, hints: Hints, is_first: bool
) -> Iterator[Guess]:
    name = names[0]
    if num_classes := classes_of(model, name):
        yield from (Guess("ids", shape, high=num_classes) for shape in ((BATCH,), (BATCH, hints.tokens)))
    axis, element = step_axis(model, name) or (None, "")
    written = (*names, element) if element else names
    consumers = list(itertools.islice((layer for words in written for layer in first_layers(model, words)), 4))
    if is_one_a_sample(name) and getattr(next(iter(consumers), None), "in_features", 0) != 1:
        yield from usual(name, hints)
        if LENGTHS.search(name.lower()) or COUNTS.search(name.lower()):
            yield from annotated(name, annotation)
            return
    if any(isinstance(m, nn.Embedding) for m in consumers[:1]):
        ids = [_shortened(g, hints) for g in wanted_by(consumers[0])]
        yield from reversed(ids) if is_single(name) else ids
    yield from annotated(name, annotation, list(_of_first_layer(model, hints)))
    if MASK.search(name.lower()):
        yield from usual(name, hints)
    wanted = [_shortened(g, hints) for m in consumers for g in itertools.islice(wanted_by(m), 3)]
    if ATTENDED.search(name.lower()):
        wanted.sort(key=lambda guess: len(guess.shape) != 3)  # noqa: PLR2004  # B x T x D
    if axis is not None:
        each = wanted or [g for g in usual(name, hints) if g.shape == (BATCH,)]
        yield from (replace(g, shape=(*g.shape[:axis], hints.tokens, *g.shape[axis:])) for g in each)
    yield from (along_edges(guess) if EDGE_VALUES.search(name.lower()) else guess for guess in wanted)
    yield from usual(name, hints)
    if is_first:
        yield from _of_first_layer(model, hints)
    yield from _anything(hints)


def _of_first_layer(model: nn.Module, hints: Hints) -> Iterator[Guess]:
    """What the first layer that wants anything wants."""
    leaves = (m for m in model.modules() if next(m.children(), None) is None)
    first = next((m for m in leaves if any(True for _ in wanted_by(m))), None)
    yield from (_shortened(g, hints) for g in (itertools.islice(wanted_by(first), 3) if first is not None else ()))


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
