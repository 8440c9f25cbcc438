"""How a guess becomes a tensor, and guesses a batch."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from gradscope.target.infer.guess import SHELLS, TYPES, Candidate, Guess

Shape = tuple[int, ...]

SEED = 20
"""Of the numbers that are drawn: the same input has the same values in every run."""
BOX = (1, 2, 30, 40)
"""Left, top, right and bottom of a made-up box, in thousandths of a page."""


def values_of(candidate: Candidate, batch_size: int) -> dict[str, Any]:
    """Return the tensors and constants of a flat candidate; the global generator does not notice."""
    return {name: make(guess, batch_size, name) for name, guess in candidate if guess.kind not in SHELLS}


def make(guess: Guess, batch_size: int, name: str) -> Any:
    """Return one input, the same for the same guess and name."""
    if guess.kind == "constant":
        return guess.value
    if guess.kind == "edges":
        return _edges(guess.shape[1], batch_size)
    generator = torch.Generator().manual_seed(SEED + zlib.crc32(name.encode()))
    return MAKERS[guess.kind](guess, guess.sized(batch_size), generator)


def _ids(guess: Guess, shape: Shape, generator: torch.Generator) -> torch.Tensor:
    return _marked(torch.randint(guess.low, max(guess.high, guess.low + 1), shape, generator=generator), guess)


def _typed(guess: Guess, shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=dtype)
    return torch.randn(shape, generator=generator).to(dtype)


def _edges(num_edges: int, num_nodes: int) -> torch.Tensor:
    """Lead from every node to those behind it, around: first to the next of each, then to the next but one."""
    start = torch.arange(num_edges)
    return torch.stack([start % num_nodes, (start + 1 + start // num_nodes) % num_nodes])


MAKERS: dict[str, Callable[[Guess, Shape, torch.Generator], Any]] = {
    "float": lambda guess, shape, generator: torch.randn(shape, generator=generator),
    **{kind: partial(_typed, dtype=dtype) for kind, dtype in TYPES.items()},
    "unit": lambda guess, shape, generator: torch.rand(shape, generator=generator),
    "ids": _ids,
    "marks": lambda guess, shape, generator: _marked(torch.zeros(shape, dtype=torch.int64), guess, flags=True),
    "boxes": lambda guess, shape, generator: torch.tensor(BOX).expand(shape).clone(),
    "bytes": lambda guess, shape, generator: torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8),
    "groups": lambda guess, shape, generator: torch.arange(shape[0]) * 2 // max(shape[0], 2),
    "patches": lambda guess, shape, generator: torch.randn(shape[0] * shape[1], *shape[2:], generator=generator),
    "rows": lambda guess, shape, generator: torch.tensor([guess.value] * shape[0]),
    "mask": lambda guess, shape, generator: torch.ones(shape, dtype=torch.int64),
    "blank": lambda guess, shape, generator: torch.zeros(shape, dtype=torch.int64),
    "starts": lambda guess, shape, generator: torch.arange(shape[0]),
    "bools": lambda guess, shape, generator: torch.zeros(shape, dtype=torch.bool),
    "trues": lambda guess, shape, generator: torch.ones(shape, dtype=torch.bool),
    "lengths": lambda guess, shape, generator: torch.full(shape, guess.high),
    "causal": lambda guess, shape, generator: torch.ones(shape).tril(),
    "list": lambda guess, shape, generator: [torch.randn(shape[1:], generator=generator) for _ in range(shape[0])],
    "id_list": lambda guess, shape, generator: list(_ids(guess, shape, generator)),
}
"""How each kind of guess becomes a value."""


def _marked(ids: torch.Tensor, guess: Guess, *, flags: bool = False) -> torch.Tensor:
    """Put the placeholder tokens (or flags where they stand) behind the first two tokens."""
    tokens = {mark.token for mark in guess.marks}
    word = next(number for number in itertools.count(guess.low) if number not in tokens)
    for token in tokens if not flags else ():
        ids[ids == token] = word  # it stands nowhere else
    start = 2
    for mark in guess.marks:
        ids[:, start : start + mark.count] = mark.flag if flags else mark.token
        start += mark.count
    return ids


def as_batch(inputs: Mapping[str, Any], positional: tuple[str, ...]) -> Any:
    """Return the inputs as a batch: by position as far as possible, because names may be positional only."""
    if all(name in positional for name in inputs) and list(inputs) == list(positional[: len(inputs)]):
        return tuple(inputs.values())
    return dict(inputs)
