"""What is tried only where a whole search for inputs has failed: lessons that are right less often than others."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import traceback
from collections.abc import Iterator
from dataclasses import replace
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

from gradscope.target.infer.changes import Lesson, with_guess, with_size
from gradscope.target.infer.first import written
from gradscope.target.infer.guess import BATCH, SHELLS, Candidate, Guess
from gradscope.target.infer.reading import parameters_of_forward
from gradscope.target.infer.sizes import pairs_in
from gradscope.target.infer.trial import Outcome

JOINING = ("cat", "concat", "concatenate", "hstack")
"""Functions that put tensors side by side."""
LOOKED_UP = re.compile(r"too many indices|out of bounds for dimension")
"""What is said where numbers that choose among tokens are too few in a row, or none of them."""
HEADS = 4
"""Axes of what is split into heads: B x heads x tokens x width."""
NUM_HEADS = re.compile(r"tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension 1")
"""What is said where queries have more heads than the keys, perhaps after these were repeated."""
FACTORS = re.compile(r"first two dimensions of batch2 tensor to be: \[\d+, (\d+)\] but got: \[\d+, (\d+)\]")
"""What is said where the vectors that two attend to each other with differ in width."""
TABLE = re.compile(r"\b([Dd]ict|Mapping)\[")
"""How a table is annotated."""
AS_TABLE = re.compile(r"'Tensor' object has no attribute '(items|keys|values|get)'")
"""What is said where a tensor stands in place of a table."""


def last_resorts(outcome: Outcome, candidate: Candidate) -> Iterator[Lesson]:
    """Yield what else to try after a failed trial."""
    if outcome.error is None:
        return
    message = str(outcome.error)
    yield from _by_joining(outcome.error, message, candidate)
    if match := FACTORS.search(message):
        yield from _of_size(candidate, HEADS - 1, int(match[2]), int(match[1]))
    if (match := NUM_HEADS.search(message)) and int(match[1]) % int(match[2]) == 0:
        factor = int(match[1]) // int(match[2])
        yield from (each for n in range(1, int(match[2]) + 1) for each in _of_size(candidate, 1, n, n * factor))
    if AS_TABLE.search(message) and outcome.model is not None:
        yield from _by_keys(outcome.model, candidate)
    if LOOKED_UP.search(message):
        yield from _along_the_text(candidate)


def _by_joining(error: BaseException, message: str, candidate: Candidate) -> Iterator[Lesson]:
    """A layer takes several inputs side by side: give one of them the width that the others leave, the last first."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    joined = [tensors for frame in reversed(frames) for tensors in _joined_in(frame)]
    for got, want in pairs_in(message):
        for tensors in (t for t in joined if sum(t.values()) == got):
            for rank, (name, width) in enumerate(reversed(tensors.items())):
                guess, left = dict(candidate).get(name), width + want - got
                if guess is not None and guess.shape[-1:] == (width,) and left > 0:
                    yield 0.1 * rank - 0.5, with_guess(candidate, name, with_size(guess, len(guess.shape) - 1, left))


def _joined_in(frame: FrameType) -> Iterator[dict[str, int]]:
    """Yield the widths of named tensors that a running function has put side by side."""
    for call in _calls(frame.f_code):
        named = call.args[0].elts if call.args and isinstance(call.args[0], ast.List | ast.Tuple) else []
        values: dict[str, Any] = {n.id: frame.f_locals.get(n.id) for n in named if isinstance(n, ast.Name)}
        if len(values) == len(named) > 1 and all(isinstance(v, torch.Tensor) and v.dim() for v in values.values()):
            yield {name: value.shape[-1] for name, value in values.items()}


def _calls(code: CodeType) -> list[ast.Call]:
    """Return the calls in a function that join tensors."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError):
        return []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if getattr(call.func, "attr", getattr(call.func, "id", "")) in JOINING]


def _by_keys(model: nn.Module, candidate: Candidate) -> Iterator[Lesson]:
    """Give a table of what the annotation of an input says, with the keys that any method of the model asks it for."""
    for parameter in parameters_of_forward(model):
        name, annotation = parameter.name, written(parameter)
        guess = dict(candidate).get(name)
        if guess is None or guess.kind in SHELLS or not TABLE.search(annotation):
            continue
        keys = dict.fromkeys(re.findall(rf"\b{name}\[[\"'](\w+)[\"']\]", source_of(type(model))))
        parts = [(f"{name}.{key}", part) for key in keys for part in _entries(guess, annotation.count("Tensor"))]
        entries = tuple((key + last, part) for key, (last, part) in parts)
        if entries:
            rest = tuple(pair for pair in candidate if pair[0] != name)
            yield -0.5, (*rest, (name, Guess("dict")), *entries)


def _of_size(candidate: Candidate, axis: int, got: int, want: int) -> Iterator[Lesson]:
    """Give an axis of all vectors of several heads another size, or of all that stand under one key of a table."""
    heads = {n: g for n, g in candidate if g.kind == "float" and len(g.shape) == HEADS and g.shape[axis] == got}
    keys = dict.fromkeys(name.rpartition(".")[0] for name in heads)
    groups = [list(heads), *([name for name in heads if name.rpartition(".")[0] == key] for key in keys)]
    for rank, group in enumerate(groups if heads else []):
        changed = {name: with_size(heads[name], axis, want) for name in group}
        yield 0.1 * rank - 0.5, tuple((name, changed.get(name, guess)) for name, guess in candidate)


def _entries(guess: Guess, num_tensors: int) -> list[tuple[str, Guess]]:
    """Return what stands under a key, and what is in it: a tensor, or a tuple of so many."""
    if num_tensors < 2:  # noqa: PLR2004  # a tuple
        return [("", guess)]
    return [("", Guess("tuple")), *((f".{rank}", guess) for rank in range(num_tensors))]


def source_of(cls: type) -> str:
    """Return the source of a class; an empty string where there is none."""
    try:
        return inspect.getsource(cls)
    except (OSError, TypeError):
        return ""


def _along_the_text(candidate: Candidate) -> Iterator[Lesson]:
    """Numbers that choose among the tokens of each text stand in rows of their own, one for each text."""
    text = next((g for _, g in candidate if g.kind == "ids" and len(g.shape) > 1), None)
    if text is None:
        return
    rows, length = (BATCH, text.shape[1]), text.shape[1]
    changed = {n: replace(g, shape=rows, high=length) for n, g in candidate if g.kind == "ids" and len(g.shape) == 1}
    if changed:
        yield -0.5, tuple((name, changed.get(name, guess)) for name, guess in candidate)
