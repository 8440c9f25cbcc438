"""All of a type is tried first, then all of it with a part idle, then a part of it; on made-up classes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from gradscope.target.draws import Draws
from gradscope.target.hf.attempt import NOT_CALLED, Attempt, Settled, note_of
from gradscope.target.hf.heads import by_reach
from gradscope.target.hf.missing import name_missing_tokens
from gradscope.target.hf.order import in_turn
from gradscope.target.hf.prepare import prepared
from gradscope.target.hf.settle import _or_whole, _settled_by, _Tried
from gradscope.target.hf.shrink import SMALL, tiny


class Config:
    """What marks a configuration."""

    model_type = "made-up"

    def to_dict(self) -> dict[str, Any]:
        """What marks a configuration."""
        return vars(self)


class TextConfig(Config):
    """Of a part that reads."""

    model_type = "made-up text"

    def __init__(self, hidden_size: int = 128, vocab_size: int = 500, cross_attention_layers: Any = (3, 8)) -> None:
        self.hidden_size, self.vocab_size = hidden_size, vocab_size
        self.cross_attention_layers = cross_attention_layers


class WholeConfig(Config):
    """Of a whole that reads and sees."""

    sub_configs = {"text_config": TextConfig}  # noqa: RUF012

    def __init__(self, text_config: Any = None, image_size: int = 16) -> None:
        self.text_config, self.image_size = text_config or TextConfig(), image_size


class Reader(nn.Module):
    """A text model that is listed for the type of the whole."""

    config_class: Any = TextConfig

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.words = nn.Embedding(config.vocab_size, config.hidden_size)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Embed."""
        return self.words(input_ids)


class Seeing(nn.Module):
    """Of the whole; it puts the picture before the text."""

    config_class: Any = WholeConfig

    def __init__(self, config: Any) -> None:
        super().__init__()
        width = config.text_config.hidden_size
        self.words = nn.Embedding(config.text_config.vocab_size, width)
        self.eyes = nn.Conv2d(3, width, 8, 8)

    def forward(self, input_ids: torch.Tensor, pixel_values: torch.Tensor | None = None) -> torch.Tensor:
        """Embed both."""
        words = self.words(input_ids)
        if pixel_values is None:
            return words
        return torch.cat([self.eyes(pixel_values).flatten(2).transpose(1, 2), words], 1)


class Blind(Seeing):
    """A whole whose code reads a field that its output does not have, wherever a picture is given."""

    def forward(self, input_ids: torch.Tensor, pixel_values: torch.Tensor | None = None) -> torch.Tensor:
        """Fail behind the picture."""
        seen = Config() if pixel_values is not None else None
        return super().forward(input_ids, pixel_values) + (0 if seen is None else seen.pictures)  # type: ignore[attr-defined]


class Words(nn.Module):
    """A part that is built from the configuration of the whole."""

    config_class: Any = WholeConfig

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.words = nn.Embedding(config.text_config.vocab_size, config.text_config.hidden_size)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Embed."""
        return self.words(input_ids)


class Deaf(Seeing):
    """A whole that nothing goes through."""

    def forward(self, input_ids: torch.Tensor, pixel_values: torch.Tensor | None = None) -> torch.Tensor:
        """Fail."""
        raise KeyError("never")


def prepare(cls: Any, level: int) -> Any:
    """Give the configuration of a class and a level."""
    return prepared(WholeConfig, {}, cls, level)


def settled(*classes: Any) -> Settled:
    """Return what is settled on among some classes."""
    wholes, portions = by_reach(classes, WholeConfig)
    for attempts in in_turn(wholes, portions, prepare):
        if (found := _settled_by(attempts, prepare, "made-up", "hf:made-up", _Tried())) is not None:
            return found
    raise AssertionError("nothing goes through")


def test_a_class_of_a_part_is_told_from_those_of_the_whole() -> None:
    assert by_reach([Reader, Seeing], WholeConfig) == ([Seeing], {Reader: "text_config"})
    assert by_reach([Reader], TextConfig) == ([Reader], {})  # the part is a type of its own as well


def test_the_whole_is_settled_on_though_its_text_model_is_listed_first() -> None:
    found = settled(Reader, Seeing)
    assert type(found.model) is Seeing
    assert found.inferred is not None
    assert len(found.inferred.batch) == 2  # a text and a picture
    assert found.notes == ("In miniature, from the default configuration of made-up; -a key=value changes it.",)


def test_a_whole_with_idle_eyes_comes_before_a_part_that_reads_and_it_is_said() -> None:
    found = settled(Reader, Blind)
    assert type(found.model) is Blind
    assert "no inputs were found that use all of it" in found.notes[0]


def test_a_part_is_what_is_left_where_no_whole_runs_and_it_is_said() -> None:
    found = settled(Reader, Deaf)
    assert type(found.model) is Reader
    source = "In miniature, from the text_config alone of made-up"
    assert found.notes == (f"{source}; {NOT_CALLED}; -a key=value changes it.",)


def test_a_part_that_was_asked_for_is_said_to_be_one_without_an_excuse() -> None:
    (attempts,) = in_turn([], {Reader: "text_config"}, prepare)
    attempt = next(iter(attempts))
    source = "In miniature, from the text_config alone of made-up"
    assert note_of(attempt, "made-up") == f"{source}; -a key=value changes it."


def instead_of(found: type, first: type) -> Settled:
    """Return what is settled on where a class was found, and another was built before it."""
    config = WholeConfig(TextConfig(hidden_size=8))
    settled = [Settled(cls(config), None, ("Small.",)) for cls in (found, first)]
    return _or_whole(*settled, prepare, Draws(), "made-up", "hf:made-up")


def test_a_whole_with_idle_eyes_comes_before_a_smaller_class_with_its_configuration() -> None:
    whole = instead_of(Words, Blind)
    assert type(whole.model) is Blind
    assert "no inputs were found that use all of it" in whole.notes[0]


def test_an_encoder_with_the_configuration_of_the_whole_is_said_to_be_a_part_of_it() -> None:
    assert instead_of(Words, Deaf).notes == ("Small.", f"Only Words, a part of Deaf: {NOT_CALLED}.")
    assert instead_of(Seeing, Words).notes == ("Small.",)


def test_a_smaller_size_of_the_same_class_is_no_part_of_it() -> None:
    small, large = (Settled(Deaf(WholeConfig(TextConfig(hidden_size=size))), None, ("Small.",)) for size in (4, 8))
    assert _or_whole(small, large, prepare, Draws(), "made-up", "hf:made-up") is small


def test_without_a_part_the_whole_is_tried_fed_all_and_then_with_a_part_idle() -> None:
    (attempts,) = in_turn([Seeing], {}, prepare)
    partial = [attempt.partial for attempt in attempts]
    assert partial == sorted(partial)
    assert set(partial) == {False, True}


def test_a_class_shown_to_lack_something_is_not_tried_at_another_size_unless_fed_otherwise() -> None:
    tried = _Tried()
    wholes, _ = by_reach([Blind], WholeConfig)
    (attempts,) = in_turn(wholes, {}, prepare)
    found = _settled_by(attempts, prepare, "made-up", "hf:made-up", tried)
    assert found is not None
    assert [attempt.partial for attempt, _, _ in tried.stuck] == [False]
    assert tried.is_hopeless(Attempt(Blind, SMALL + 1, partial=False))
    assert not tried.is_hopeless(Attempt(Blind, SMALL, partial=True))
    assert tried.mendable == []


@pytest.mark.parametrize(("path", "owner"), [("", "whole"), ("text_config.", "part")])
def test_a_token_that_the_code_reads_off_a_part_is_given_to_the_part(
    monkeypatch: pytest.MonkeyPatch, path: str, owner: str
) -> None:
    source = f"shifted(labels, self.config.{path}decoder_start_token_id)"
    monkeypatch.setattr("gradscope.target.hf.missing.source_of_module", lambda name: source)
    config = tiny(WholeConfig, {})
    name_missing_tokens(config, Seeing)
    assert hasattr(config, "decoder_start_token_id") is (owner == "whole")
    assert hasattr(config.text_config, "decoder_start_token_id") is (owner == "part")


def test_of_two_layers_one_attends_across_and_one_does_not() -> None:
    assert tiny(WholeConfig, {}).text_config.cross_attention_layers == (1,)
