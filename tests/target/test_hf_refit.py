"""Configurations whose sizes disagree are made to agree by what a forward of their model says; no library is needed."""

from __future__ import annotations

import torch
from torch import nn

from gradscope.target.hf.attempt import Attempt, inputs_of
from gradscope.target.hf.refit import other_sizes, refitted
from gradscope.target.hf.shrink import SMALL
from gradscope.target.infer.guess import BATCH, Guess
from gradscope.target.infer.search import search_inputs
from gradscope.target.infer.trials import NothingFitsError


class Config:
    """A configuration that keeps what it is given."""

    model_type = "made-up"

    def __init__(self, maps=None, hidden_size=384, eyes=None):
        self.maps, self.hidden_size, self.eyes = maps, hidden_size, eyes

    def to_dict(self):
        """What marks a configuration."""
        return vars(self)


class Eyes(nn.Module):
    """Two maps, the finer one first."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 16, 3, 2, 1)

    def forward(self, pixels):
        first = self.one(pixels)
        return first, self.two(first)


class Neck(nn.Module):
    """One layer for each map, as wide as the configuration says that the map is."""

    def __init__(self, config):
        super().__init__()
        self.eyes = Eyes()
        self.layers = nn.ModuleList(nn.Conv2d(width, 4, 1) for width in config.maps)

    def forward(self, pixels):
        return sum(layer(seen).mean((2, 3)) for layer, seen in zip(self.layers, self.eyes(pixels), strict=True))


class Detail(nn.Module):
    """A layer beside the eyes that takes what they see together with the picture."""

    def __init__(self, config):
        super().__init__()
        self.eyes = nn.Conv2d(3, config.eyes.hidden_size, 3, 1, 1)
        self.out = nn.Conv2d(config.hidden_size + 3, 2, 1)

    def forward(self, pixels):
        return self.out(torch.cat([self.eyes(pixels), pixels], 1))


def failure_of(cls, config) -> NothingFitsError:
    first = [(0.0, (("pixels", Guess("float", (BATCH, 3, 16, 16))),))]
    try:
        search_inputs(model := cls(config), lambda: model, "made-up", first, most_trials=6)
    except NothingFitsError as failure:
        return failure
    raise AssertionError("the sizes agree")


def test_the_widths_of_maps_are_those_that_the_backbone_gives():
    config = Config(maps=(384, 192))
    found = refitted(Neck, config, failure_of(Neck, config), other_sizes)
    assert found.config.maps == [8, 16]
    assert found.changed == "maps = [8, 16]"
    assert config.maps == (384, 192)


def test_a_width_that_is_added_to_another_is_that_of_the_part():
    config = Config(eyes=Config(hidden_size=64))
    found = refitted(Detail, config, failure_of(Detail, config), other_sizes)
    assert (found.config.hidden_size, found.config.eyes.hidden_size) == (64, 64)
    assert found.changed == "hidden_size = 64"


def test_what_the_first_layer_wants_is_a_matter_of_the_inputs():
    failure = NothingFitsError("", message="to have 384 channels, but got 8 channels", progress=1)
    assert refitted(Neck, Config(maps=(384, 192)), failure, other_sizes) is None


def test_a_failure_that_is_kept_keeps_no_copy_of_the_model(monkeypatch):
    monkeypatch.setattr("gradscope.target.hf.attempt.MOST_TRIALS", 6)
    config = Config(maps=(384, 192))
    failure = inputs_of(Neck(config), Attempt(Neck, SMALL, partial=True), config, "made-up")
    assert isinstance(failure, NothingFitsError)
    assert failure.__traceback__ is failure.__context__ is None


def test_what_no_size_is_behind_is_left_to_the_search():
    config = Config(maps=(8, 192, 32))  # a layer too many
    assert refitted(Neck, config, failure_of(Neck, config), other_sizes).config.maps == [8, 16, 32]
    config = Config(maps=(8, 16, 32))
    assert refitted(Neck, config, failure_of(Neck, config), other_sizes) is None
