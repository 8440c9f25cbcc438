"""Inputs that are looked up by words somewhere inside a model: ``features["user"]``."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch

from gradscope.target.infer.changes import Lesson, with_guess
from gradscope.target.infer.conditions import last_of, parts_of_statement, value_of
from gradscope.target.infer.guess import BATCH, Candidate, Guess

LEAST = Guess("ids", (BATCH,), high=2)
"""What stands under a key of which nothing is known: numbers that any table has, until a layer wants something else."""


def by_keys(error: BaseException | None, candidate: Candidate, inputs: Mapping[str, object]) -> Iterator[Lesson]:
    """Make a tensor that is looked up by a word a table, and give a table the key that it lacks."""
    last = last_of(error)
    if last is None or not isinstance(error, KeyError | IndexError | TypeError):
        return
    for node in parts_of_statement(last):
        if not isinstance(node, ast.Subscript):
            continue
        held, key = value_of(node.value, last.tb_frame), value_of(node.slice, last.tb_frame)
        if not isinstance(key, str):
            continue
        for name, guess in candidate:
            is_tensor = isinstance(held, torch.Tensor) and inputs.get(name) is held
            is_table = isinstance(held, dict) and guess.kind == "dict" and set(held) == _keys_of(candidate, name)
            if is_tensor or (is_table and key not in held):
                yield -0.5, _with_key(candidate, name, key, guess)


def _keys_of(candidate: Candidate, name: str) -> set[str]:
    return {key.removeprefix(f"{name}.") for key, _ in candidate if key.startswith(f"{name}.")}


def _with_key(candidate: Candidate, name: str, key: str, guess: Guess) -> Candidate:
    """Return a candidate with one key more in a table; what has been a tensor becomes one."""
    return (*with_guess(candidate, name, replace(guess, kind="dict", shape=())), (f"{name}.{key}", LEAST))
