"""What one input of a model might be, and how a guess becomes a tensor.

Shape legend: a dimension of 0 stands for the batch size, which is settled last.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

BATCH = 0
"""Stands for the batch size in a guessed shape."""
SEED = 20
BOX = (1, 2, 30, 40)
"""Left, top, right and bottom of a made-up box, in thousandths of a page."""
Shape = tuple[int, ...]


class Mark(NamedTuple):
    """A run of placeholders in every text.

    Attributes:
        token: The placeholder.
        count: How many of it stand in a row.
        flag: What stands there in an input that tells placeholders from words.
    """

    token: int
    count: int
    flag: int = 1


@dataclass(frozen=True)
class Guess:
    """One input.

    Attributes:
        kind: float, ids (integers below `high`), unit (floats in 0..1), mask (ones), bools (False), trues, lengths
            (`high` each), causal (lower triangle), boxes, marks (where placeholders stand), patches (of all samples in
            one axis), rows (`value` a sample), list (of tensors), constant (`value`), dict or tuple (of `parts`).
        shape: Its dimensions; 0 is the batch size.
        high: One more than the largest id.
        low: The smallest id.
        marks: Placeholders in every text, one run behind the other.
        value: Of a constant.
        parts: Named parts of a dict, or numbered ones of a tuple.
    """

    kind: str
    shape: tuple[int, ...] = ()
    high: int = 2
    low: int = 0
    marks: tuple[Mark, ...] = ()
    value: Any = None
    parts: tuple[tuple[str, Guess], ...] = ()

    def describe(self, batch_size: int) -> str:
        """Say in words what it is."""
        if self.kind == "constant":
            return repr(self.value)
        if self.kind in ("dict", "tuple"):
            return "(" + ", ".join(f"{name}: {part.describe(batch_size)}" for name, part in self.parts) + ")"
        size = "x".join(str(dim or batch_size) for dim in self.shape) or "scalar"
        words = {
            "float": f"{size} normal numbers",
            "ids": f"{size} integers below {self.high}",
            "unit": f"{size} numbers in 0..1",
            "mask": f"{size} ones",
            "bools": f"{size} False",
            "trues": f"{size} True",
            "marks": f"{size} placeholder marks",
            "boxes": f"{size} boxes",
            "patches": f"{size} patches",
            "rows": f"{size} rows of {self.value}",
            "lengths": f"{size} times the full length {self.high}",
            "causal": f"{size} causal mask",
            "list": f"list of {size} normal numbers",
        }
        return words[self.kind]


Candidate = tuple[tuple[str, Guess], ...]
"""A guess for every input, by name."""


def realise(candidate: Candidate, batch_size: int) -> dict[str, Any]:
    """Return the inputs of a candidate; the global generator does not notice."""
    return {name: make(guess, batch_size, name) for name, guess in candidate}


def make(guess: Guess, batch_size: int, name: str) -> Any:
    """Return one input, the same for the same guess and name."""
    if guess.kind == "constant":
        return guess.value
    if guess.kind == "dict":
        return {key: make(part, batch_size, key) for key, part in guess.parts}
    if guess.kind == "tuple":
        return tuple(make(part, batch_size, f"{name}.{key}") for key, part in guess.parts)
    generator = torch.Generator().manual_seed(SEED + zlib.crc32(name.encode()))
    return MAKERS[guess.kind](guess, tuple(dim or batch_size for dim in guess.shape), generator)


def _ids(guess: Guess, shape: Shape, generator: torch.Generator) -> torch.Tensor:
    return _marked(torch.randint(guess.low, max(guess.high, guess.low + 1), shape, generator=generator), guess)


MAKERS: dict[str, Callable[[Guess, Shape, torch.Generator], Any]] = {
    "float": lambda guess, shape, generator: torch.randn(shape, generator=generator),
    "unit": lambda guess, shape, generator: torch.rand(shape, generator=generator),
    "ids": _ids,
    "marks": lambda guess, shape, generator: _marked(torch.zeros(shape, dtype=torch.int64), guess, flags=True),
    "boxes": lambda guess, shape, generator: torch.tensor(BOX).expand(shape).clone(),
    "patches": lambda guess, shape, generator: torch.randn(shape[0] * shape[1], *shape[2:], generator=generator),
    "rows": lambda guess, shape, generator: torch.tensor([guess.value] * shape[0]),
    "mask": lambda guess, shape, generator: torch.ones(shape, dtype=torch.int64),
    "bools": lambda guess, shape, generator: torch.zeros(shape, dtype=torch.bool),
    "trues": lambda guess, shape, generator: torch.ones(shape, dtype=torch.bool),
    "lengths": lambda guess, shape, generator: torch.full(shape, guess.high),
    "causal": lambda guess, shape, generator: torch.ones(shape).tril(),
    "list": lambda guess, shape, generator: [torch.randn(shape[1:], generator=generator) for _ in range(shape[0])],
}
"""How each kind of guess becomes a value."""


def _marked(ids: torch.Tensor, guess: Guess, *, flags: bool = False) -> torch.Tensor:
    """Put the placeholder tokens (or flags where they stand) behind the first two tokens."""
    for mark in guess.marks if not flags else ():
        ids[ids == mark.token] = mark.token - 1 if mark.token else 1  # it stands nowhere else
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


def described(candidate: Candidate, batch_size: int) -> str:
    """Say in words what a candidate is."""
    return ", ".join(f"{name} = {guess.describe(batch_size)}" for name, guess in candidate) or "no inputs"
