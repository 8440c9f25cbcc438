"""What a configuration refuses, and the tables it leaves open, on made-up classes: no library is needed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gradscope.target.hf.agree import configured, given_back
from gradscope.target.hf.repair import built


@dataclasses.dataclass
class Part:
    """A part with a vocabulary."""

    model_type = "part"
    vocab_size: int = 1000
    width: int = 0
    words: dict | None = None  # type: ignore[type-arg]

    def to_dict(self) -> dict[str, Any]:
        """What marks a configuration."""
        return dict(vars(self))


@dataclasses.dataclass
class Whole:
    """A composite that wants its part's vocabulary to hold a range of tokens, and the part's width to be zero."""

    model_type = "whole"
    sub_configs = {"part": object}  # noqa: RUF012  # any configuration may be the part
    part: Any = None
    first: int = 900
    codebook: int = 64

    def __post_init__(self) -> None:
        self.part = self.part or Part()
        if self.part.width:
            raise ValueError(f"width must be 0, got {self.part.width}")
        if self.first + self.codebook > self.part.vocab_size:
            raise ValueError(f"The range ends beyond the vocabulary (`part.vocab_size` = {self.part.vocab_size})")

    def to_dict(self) -> dict[str, Any]:
        """What marks a configuration."""
        return dict(vars(self))


class Reader:
    """Looks a word up in a table that the configuration leaves open."""

    def __init__(self, config: Part) -> None:
        self.found = config.words.get("image")  # type: ignore[union-attr]  # it is what is tested


def test_a_table_that_is_left_open_is_empty() -> None:
    assert built(Reader, Part()).found is None


def test_a_setting_that_a_refusal_names_is_given_back() -> None:
    small = {"part": Part(vocab_size=256)}
    assert dict(given_back(Whole, "beyond (`part.vocab_size` = 256)", small))["part"].vocab_size == 1000
    assert configured(Whole, small).part.vocab_size == 1000
    with pytest.raises(ValueError, match="beyond"):
        configured(Whole, {"first": 999, "codebook": 99})  # it is the default already


def test_what_a_part_must_be_is_set_in_the_part_that_is_there() -> None:
    assert configured(Whole, {"part": Part(width=16)}).part.width == 0
