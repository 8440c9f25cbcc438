"""Convolutional models, whose widths miniatures keep, are divided in step; on made-up classes: no library is needed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from gradscope.target.hf import order
from gradscope.target.hf.order import in_turn
from gradscope.target.hf.prepare import prepared
from gradscope.target.hf.scale import common_factor, divided
from gradscope.target.hf.shrink import IN_STEP, SAME_WIDTHS, SMALL, shrunk, tiny


class Config:
    """A configuration of an autoencoder of pictures."""

    model_type = "made-up autoencoder"

    def __init__(
        self,
        base_channels: int = 128,
        channel_multiplier: Any = (1, 2, 4),
        stem_channels: Any = (3, 32, 64),
        latent_channels: int = 256,
        code_dim: int = 8,
        num_filters: int = 64,
        out_channels: int = 3,
        num_patches: int = 32,
    ) -> None:
        vars(self).update({name: value for name, value in locals().items() if name != "self"})

    def to_dict(self) -> dict[str, Any]:
        """What marks a configuration."""
        return vars(self)


class Autoencoder(nn.Module):
    """Convolutions of a base width times the multipliers, normed in 32 groups."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        widths = [config.base_channels * factor for factor in config.channel_multiplier]
        self.convolutions = nn.ModuleList(nn.Conv2d(3, width, 3) for width in widths)
        self.norms = nn.ModuleList(nn.GroupNorm(32, width) for width in widths)
        self.code = nn.Linear(config.latent_channels, config.code_dim)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Do nothing."""
        return pixel_values


class Counting(nn.Module):
    """A model whose constructor computes with its parameters."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.base_channels))
        self.total = self.weight.sum().item()


class Broken(nn.Module):
    """A model that no configuration builds."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        raise KeyError("never")


def test_widths_of_convolutions_are_divided_and_colours_factors_and_codes_stay() -> None:
    changes = divided(Config(), common_factor(Config()))
    assert changes == {
        "base_channels": 16, "stem_channels": (3, 4, 8), "latent_channels": 32, "num_filters": 8,
    }  # fmt: skip


def test_half_the_divisor_is_taken_where_a_model_cannot_be_built_with_all_of_it() -> None:
    assert common_factor(Config()) == 8
    assert prepared(Config, {}, Autoencoder, IN_STEP).config.base_channels == 32  # a norm of 32 groups takes no less


def test_a_model_that_computes_with_its_parameters_is_left_uncounted() -> None:
    assert prepared(Config, {}, Counting, SAME_WIDTHS).num_parameters is None


def test_what_is_wrong_with_a_large_model_is_said_before_it_takes_memory() -> None:
    assert prepared(Config, {}, Broken, SMALL).num_parameters is None
    with pytest.raises(KeyError):
        prepared(Config, {}, Broken, SAME_WIDTHS)


@pytest.mark.parametrize(("most", "first"), [(10, [IN_STEP, SMALL]), (10**9, [SMALL, SAME_WIDTHS])])
def test_a_miniature_that_is_still_large_comes_behind_the_one_divided_in_step(
    monkeypatch: pytest.MonkeyPatch, most: int, first: list[int]
) -> None:
    monkeypatch.setattr(order, "MANY_PARAMETERS", most)
    attempts = list(next(in_turn([Autoencoder], {}, lambda cls, level: prepared(Config, {}, cls, level))))
    assert [attempt.level for attempt in attempts[:2]] == first
    assert len(attempts) == len({attempt.level for attempt in attempts})


class Vit:
    """A configuration of the part that cuts pictures into patches."""

    model_type = "made-up patches"

    def __init__(self, image_size: int = 1008, patch_size: int = 14) -> None:
        self.image_size, self.patch_size = image_size, patch_size

    def to_dict(self) -> dict[str, Any]:
        """What marks a configuration."""
        return vars(self)


class Pyramid:
    """A configuration whose pictures are those of its part, and that says how large the maps are that come out."""

    model_type = "made-up pyramid"

    def __init__(self, backbone: Any = None, map_feature_sizes: Any = ((288, 288), (72, 72))) -> None:
        self.backbone, self.map_feature_sizes = backbone or Vit(), map_feature_sizes

    @property
    def image_size(self) -> int:
        """The size of the part's pictures."""
        return int(self.backbone.image_size)

    @image_size.setter
    def image_size(self, value: int) -> None:
        self.backbone.image_size = value

    def to_dict(self) -> dict[str, Any]:
        """What marks a configuration."""
        return vars(self)


def test_a_picture_is_as_small_as_that_of_the_part_that_cuts_it_and_so_are_its_maps() -> None:
    changes = shrunk(Pyramid(), SMALL, [])
    assert changes["image_size"] == changes["backbone"].image_size == 56
    assert changes["map_feature_sizes"] == [[16, 16], [4, 4]]


@pytest.mark.parametrize(("patches", "few"), [(32, 4), (256, 16), (9, 9)])
def test_a_picture_is_cut_into_few_patches_whether_they_are_counted_by_the_side_or_all(patches: int, few: int) -> None:
    counted = type("Counted", (Config,), {"__init__": lambda self, num_patches=patches: Config.__init__(
        self, num_patches=num_patches
    )})  # fmt: skip
    assert tiny(counted, {}).num_patches == few
