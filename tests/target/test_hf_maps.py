"""A backbone puts out as many maps as its model joins; no library is needed."""

from __future__ import annotations

import torch
from torch import nn

from gradscope.target.draws import Draws
from gradscope.target.hf.attempt import Attempt, Settled
from gradscope.target.hf.maps import more_maps
from gradscope.target.hf.refit import refitted
from gradscope.target.hf.settle import _better, _Tried
from gradscope.target.hf.shrink import SMALL
from gradscope.target.infer.guess import BATCH, Guess
from gradscope.target.infer.search import search_inputs
from gradscope.target.infer.trials import NothingFitsError


class Config:
    """A configuration that keeps what it is given."""

    model_type = "made-up"

    def __init__(self, **settings):
        vars(self).update(settings)

    def to_dict(self):
        """What marks a configuration."""
        return vars(self)


def composite() -> Config:
    return Config(backbone_config=Config(stage_names=["stem", "stage1", "stage2", "stage3"], out_features=["stage3"]))


class Backbone(nn.Module):
    """Four maps of one width, of which those that are asked for are returned."""

    def __init__(self, config):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.stages = nn.ModuleList(nn.Conv2d(8, 8, 3, 1, 1) for _ in range(3))
        self.ranks = [config.stage_names.index(name) for name in config.out_features]

    def forward(self, pixels):
        maps = [self.stem(pixels)]
        for stage in self.stages:
            maps.append(stage(maps[-1]))
        return [maps[rank] for rank in self.ranks]


class Joining(nn.Module):
    """A head over the maps of all three stages."""

    def __init__(self, config):
        super().__init__()
        self.backbone = Backbone(config.backbone_config)
        self.head = nn.Conv2d(24, 2, 1)

    def forward(self, pixels):
        return self.head(torch.cat(self.backbone(pixels), 1)).mean((2, 3))


def failure_of(config) -> NothingFitsError:
    first = [(0.0, (("pixels", Guess("float", (BATCH, 3, 16, 16))),))]
    try:
        search_inputs(model := Joining(config), lambda: model, "made-up", first, most_trials=6)
    except NothingFitsError as failure:
        return failure
    raise AssertionError("the sizes agree")


def test_a_backbone_puts_out_the_maps_that_its_model_joins():
    config = composite()
    found = refitted(Joining, config, failure_of(config), more_maps)
    assert found.changed == "backbone_config.out_features = ['stage1', 'stage2', 'stage3']"
    assert config.backbone_config.out_features == ["stage3"]


def test_no_more_maps_are_put_out_than_there_are():
    message = "expected input[4, 8, 8, 8] to have 40 channels, but got 8 channels instead"
    assert not list(more_maps(composite(), message))
    assert not list(more_maps(composite(), message.replace("40", "20")))
    assert [len(change.value) for change in more_maps(composite(), message.replace("40", "16"))] == [2]


def test_a_model_that_lacks_only_maps_comes_before_a_part_of_it_that_runs():
    config = composite()
    part = Settled(Backbone(config.backbone_config), None, ())
    stuck = (Attempt(Joining, SMALL, partial=False), config, failure_of(config))
    torch.manual_seed(3)
    draws = Draws()
    torch.rand(5)
    better = _better(part, _Tried(stuck=[stuck]), draws, "made-up", "made-up")
    assert isinstance(better.model, Joining)
    assert better.inferred is not None
    torch.manual_seed(3)
    assert torch.equal(better.model.backbone.stem.weight, Joining(config).backbone.stem.weight)
    torch.manual_seed(4)
    expected = torch.rand(2)
    torch.manual_seed(4)
    assert _better(Settled(better.model, None, ()), _Tried(stuck=[stuck]), draws, "made-up", "made-up") is None
    assert torch.equal(torch.rand(2), expected)
