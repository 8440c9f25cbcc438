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

from gradscope.target.infer.changes import Lesson, with_guess, with_size
from gradscope.target.infer.guess import BATCH, Candidate
from gradscope.target.infer.sizes import pairs_in
from gradscope.target.infer.trial import Outcome

JOINING = ("cat", "concat", "concatenate", "hstack")
"""Functions that put tensors side by side."""
VIDEO_AXES = 5
"""Axes of a batch of videos: samples, frames, channels and the sides of each frame."""
LOOKED_UP = re.compile(r"too many indices|out of bounds for dimension")
"""What is said where numbers that choose among tokens are too few in a row, or none of them."""


def last_resorts(outcome: Outcome, candidate: Candidate) -> Iterator[Lesson]:
    """Yield what else to try after a failed trial."""
    if outcome.error is None:
        return
    message = str(outcome.error)
    yield from _by_joining(outcome.error, message, candidate)
    yield from _frames_of_another_side(message, candidate)
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


def _frames_of_another_side(message: str, candidate: Candidate) -> Iterator[Lesson]:
    """Give the frames of a video both sides that a message wants of one; its other axes have sizes of their own."""
    for got, want in pairs_in(message):
        for name, guess in candidate:
            if len(guess.shape) == VIDEO_AXES and guess.shape[-2:] == (got, got):
                yield -0.5, with_guess(candidate, name, replace(guess, shape=(*guess.shape[:-2], want, want)))


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


def _along_the_text(candidate: Candidate) -> Iterator[Lesson]:
    """Numbers that choose among the tokens of each text stand in rows of their own, one for each text."""
    text = next((g for _, g in candidate if g.kind == "ids" and len(g.shape) > 1), None)
    if text is None:
        return
    rows, length = (BATCH, text.shape[1]), text.shape[1]
    changed = {n: replace(g, shape=rows, high=length) for n, g in candidate if g.kind == "ids" and len(g.shape) == 1}
    if changed:
        yield -0.5, tuple((name, changed.get(name, guess)) for name, guess in candidate)
