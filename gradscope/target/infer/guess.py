"""What one input of a model might be, and how a guess becomes a tensor.

Shape legend: a dimension of 0 stands for the batch size, which is settled last.
"""

from __future__ import annotations

import types
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

BATCH = 0
"""Stands for the batch size in a guessed shape."""
TRIAL_BATCH = 4
"""Samples in a trial: few, but more than BatchNorm needs, and a number that layers seldom have as a size."""
SEED = 20
BOX = (1, 2, 30, 40)
"""Left, top, right and bottom of a made-up box, in thousandths of a page."""
TYPES = {
    "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16, "complex": torch.complex64
}  # fmt: skip
"""Kinds of normally distributed numbers of another type than the usual one."""
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Mark:
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
        kind: float, double, half, bfloat16, complex, ids (integers below `high`), unit (floats in 0..1), mask (ones),
            blank (zeros), bools (False), trues, lengths (`high` each), starts (0, 1, 2 …), causal (lower triangle),
            boxes, marks (where placeholders stand), patches (of all samples in one axis), rows (`value` a sample), list
            and id_list (of tensors), constant (`value`), or one of SHELLS.
        shape: Its dimensions; 0 is the batch size.
        high: One more than the largest id.
        low: The smallest id.
        marks: Placeholders in every text, one run behind the other.
        value: Of a constant; the class of an object.
        parts: What is inside a shell, by name; `flat` turns them into inputs of their own.
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
        size = "x".join(str(dim or batch_size) for dim in self.shape) or "scalar"
        words = {
            "float": f"{size} normal numbers",
            **{kind: f"{size} {kind} normal numbers" for kind in TYPES},
            "ids": f"{size} integers below {self.high}",
            "unit": f"{size} numbers in 0..1",
            "mask": f"{size} ones",
            "blank": f"{size} zeros",
            "starts": f"{size} numbers 0, 1, 2 …",
            "bools": f"{size} False",
            "trues": f"{size} True",
            "marks": f"{size} placeholder marks",
            "boxes": f"{size} boxes",
            "patches": f"{size} patches",
            "rows": f"{size} rows of {self.value}",
            "lengths": f"{size} times the full length {self.high}",
            "causal": f"{size} causal mask",
            "list": f"list of {size} normal numbers",
            "id_list": f"list of {size} integers below {self.high}",
        }
        return words[self.kind]


Candidate = tuple[tuple[str, Guess], ...]
"""A guess for every input, by name."""


def flat(candidate: Candidate) -> Candidate:
    """Make every part of a dict, tuple or object an input of its own, called after both: ``batch.image``.

    What is learnt from a failure then reaches the parts as well.
    """
    return tuple(entry for name, guess in candidate for entry in _opened(name, guess))


def _opened(name: str, guess: Guess) -> Candidate:
    return ((name, replace(guess, parts=())), *((f"{name}.{key}", part) for key, part in guess.parts))


def values_of(candidate: Candidate, batch_size: int) -> dict[str, Any]:
    """Return the tensors and constants of a flat candidate; the global generator does not notice."""
    return {name: make(guess, batch_size, name) for name, guess in candidate if guess.kind not in SHELLS}


def assembled(candidate: Candidate, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a flat candidate, the parts of a dict, tuple or object put into it."""
    shells = [(name, guess) for name, guess in candidate if guess.kind in SHELLS]
    inputs = dict(values)
    for name, guess in shells:
        parts = {key.removeprefix(f"{name}."): inputs.pop(key) for key in list(inputs) if key.startswith(f"{name}.")}
        inputs[name] = SHELLS[guess.kind](guess.value, parts)
    return {name: inputs[name] for name, _ in candidate if name in inputs}


SHELLS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "dict": lambda _, parts: parts,
    "tuple": lambda _, parts: tuple(parts.values()),
    "object": lambda cls, parts: (cls or types.SimpleNamespace)(**parts),
}
"""Kinds of input that only hold others, and how one is made of them."""


def make(guess: Guess, batch_size: int, name: str) -> Any:
    """Return one input, the same for the same guess and name."""
    if guess.kind == "constant":
        return guess.value
    generator = torch.Generator().manual_seed(SEED + zlib.crc32(name.encode()))
    return MAKERS[guess.kind](guess, tuple(dim or batch_size for dim in guess.shape), generator)


def _ids(guess: Guess, shape: Shape, generator: torch.Generator) -> torch.Tensor:
    return _marked(torch.randint(guess.low, max(guess.high, guess.low + 1), shape, generator=generator), guess)


def _typed(guess: Guess, shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=dtype)
    return torch.randn(shape, generator=generator).to(dtype)


MAKERS: dict[str, Callable[[Guess, Shape, torch.Generator], Any]] = {
    "float": lambda guess, shape, generator: torch.randn(shape, generator=generator),
    **{kind: partial(_typed, dtype=dtype) for kind, dtype in TYPES.items()},
    "unit": lambda guess, shape, generator: torch.rand(shape, generator=generator),
    "ids": _ids,
    "marks": lambda guess, shape, generator: _marked(torch.zeros(shape, dtype=torch.int64), guess, flags=True),
    "boxes": lambda guess, shape, generator: torch.tensor(BOX).expand(shape).clone(),
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
    """Say in words what a flat candidate is."""
    told = {}
    for name, guess in candidate:
        if guess.kind in SHELLS:
            inside = [(n.removeprefix(f"{name}."), g) for n, g in candidate if n.startswith(f"{name}.")]
            told[name] = "(" + ", ".join(f"{key}: {part.describe(batch_size)}" for key, part in inside) + ")"
        elif not any(name.startswith(f"{shell}.") for shell in told):
            told[name] = guess.describe(batch_size)
    return ", ".join(f"{name} = {words}" for name, words in told.items()) or "no inputs"
