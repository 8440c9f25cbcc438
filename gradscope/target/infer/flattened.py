"""The sides of a picture, from the factors that its last maps are flattened by: ``x.view(-1, 32 * 4 * 9 * 9)``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from types import FrameType

import torch

from gradscope.target.infer.changes import Lesson, with_guess
from gradscope.target.infer.conditions import last_of, parts_of_statement, value_of
from gradscope.target.infer.guess import Candidate

FLATTENING = ("view", "reshape")
FEWEST_AXES = 4
"""Of maps: samples, channels and two sides."""


def by_flattening(error: BaseException | None, candidate: Candidate) -> Iterator[Lesson]:
    """Make each side as much longer as the side that comes out of it has to be."""
    last = last_of(error)
    if last is None or "is invalid for input of size" not in str(error):
        return
    for node in parts_of_statement(last):
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") not in FLATTENING:
            continue
        maps = value_of(node.func.value, last.tb_frame) if isinstance(node.func, ast.Attribute) else None
        if not isinstance(maps, torch.Tensor) or maps.dim() < FEWEST_AXES:
            continue
        for factors in (_factors(argument, last.tb_frame) for argument in node.args):
            if factors is None or len(factors) != maps.dim() - 1 or factors[0] != maps.shape[1]:
                continue
            for name, guess in candidate:
                if guess.kind == "float" and len(guess.shape) == maps.dim():
                    sides = zip(guess.shape[2:], factors[1:], maps.shape[2:], strict=True)
                    shape = (*guess.shape[:2], *(round(side * want / got) for side, want, got in sides))
                    yield -0.6, with_guess(candidate, name, replace(guess, shape=shape))


def _factors(node: ast.expr, frame: FrameType) -> list[int] | None:
    """Return the factors of a product of whole numbers; None where it is none."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = _factors(node.left, frame), _factors(node.right, frame)
        return [*left, *right] if left and right else None
    value = value_of(node, frame)
    return [value] if type(value) is int and value > 0 else None
