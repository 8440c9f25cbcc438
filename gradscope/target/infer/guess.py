"""What one input of a model might be.

Shape legend: a dimension of 0 stands for the batch size B, which is settled last; a first one of -n for n rows a
sample, n * B in all.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

BATCH = 0
"""Stands for the batch size in a guessed shape."""
TRIAL_BATCH = 4
"""Samples in a trial: few, but more than BatchNorm needs, and a number that layers seldom have as a size."""
TYPES = {
    "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16, "complex": torch.complex64
}  # fmt: skip
"""Kinds of normally distributed numbers of another type than the usual one."""


MOST_NUMBERS = 2**26
"""Numbers in the inputs of a trial: 256 MB. What failures teach can lead to sizes that no machine holds."""


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
            boxes, bytes (numbers below 256 as uint8), edges (of a graph whose nodes are the samples), groups (0 for the
            first half of the samples, 1 for the second), marks (where placeholders stand), patches (of all samples in
            one axis), rows (`value` a sample), list and id_list (of tensors), constant (`value`), or one of SHELLS.
        shape: Its dimensions; 0 is the batch size, and -n in the first place n times that.
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

    def sized(self, batch_size: int) -> tuple[int, ...]:
        """Return its dimensions in a batch of that many samples."""
        return tuple(dim if dim > 0 else batch_size * max(-dim, 1) for dim in self.shape)

    def describe(self, batch_size: int) -> str:
        """Say in words what it is."""
        if self.kind == "constant":
            return repr(self.value)
        size = "x".join(map(str, self.sized(batch_size))) or "scalar"
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
            "bytes": f"{size} bytes",
            "edges": f"{size} edges between the samples",
            "groups": f"{size} numbers of two groups",
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


def assembled(candidate: Candidate, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a flat candidate, the parts of a dict, tuple or object put into it."""
    shells = [(name, guess) for name, guess in candidate if guess.kind in SHELLS]
    inputs = dict(values)
    for name, guess in reversed(shells):  # what is inside another first
        parts = {key.removeprefix(f"{name}."): inputs.pop(key) for key in list(inputs) if key.startswith(f"{name}.")}
        inputs[name] = SHELLS[guess.kind](guess.value, parts)
    return {name: inputs[name] for name, _ in candidate if name in inputs}


SHELLS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "dict": lambda _, parts: parts,
    "tuple": lambda _, parts: tuple(parts.values()),
    "object": lambda cls, parts: (cls or types.SimpleNamespace)(**parts),
    "records": lambda _, parts: [dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True)],
}
"""Kinds of input that only hold others, and how one is made of them."""


def described(candidate: Candidate, batch_size: int) -> str:
    """Say in words what a flat candidate is."""
    told: dict[str, str] = {}
    for name, guess in candidate:
        if any(name.startswith(f"{shell}.") for shell in told):
            continue
        if guess.kind in SHELLS:
            each = "for each sample " if guess.kind == "records" else ""
            inside = [(n.removeprefix(f"{name}."), g) for n, g in candidate if n.startswith(f"{name}.")]
            inside = [(n, part) for n, part in inside if part.kind not in SHELLS]
            told[name] = f"{each}(" + ", ".join(f"{key}: {part.describe(batch_size)}" for key, part in inside) + ")"
        else:
            told[name] = guess.describe(batch_size)
    return ", ".join(f"{name} = {words}" for name, words in told.items()) or "no inputs"


def is_sane(candidate: Candidate) -> bool:
    """Whether the inputs are of sizes that a trial may have, and a text with placeholders has tokens."""
    guesses = [guess for _, guess in candidate]
    if any(dim < 0 for guess in guesses for dim in guess.shape[1:]):
        return False
    num_numbers = sum(math.prod(guess.sized(TRIAL_BATCH)) for guess in guesses)
    return num_numbers <= MOST_NUMBERS and all(len(guess.shape) > 1 or not guess.marks for guess in guesses)
