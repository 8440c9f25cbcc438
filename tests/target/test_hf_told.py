"""Settings that a default configuration leaves open and its models need, from its documentation and signature."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from gradscope.target.hf.agree import configured
from gradscope.target.hf.prepare import prepared
from gradscope.target.hf.repair import built
from gradscope.target.hf.shrink import SMALL, shrunk, tiny
from gradscope.target.hf.told import list_for, takes_lists, takes_numbers, takes_words, word_for

KINDS = ("full", "window")


class Config:
    r"""
    mlp_layer_types (`list[str]`, *optional*):
        The kind (`"dense"` or `"sparse"`) of each layer, e.g. `["dense", "sparse", ...]`.
    layer_map (`list`, *optional*):
        List of `[eye_layer, word_layer]` pairs.
    extras (`list[int]`, *optional*):
        Layers with more.
    rate (`str`, *optional*):
        How much is kept, e.g. `"1/4"` or `"3/8"`.
    """

    model_type = "made-up mixture"

    def __init__(
        self,
        num_hidden_layers: int = 3,
        mlp_layer_types: list[str] | None = None,
        layer_map: list | None = None,  # type: ignore[type-arg]  # as configurations have it
        extras: list[int] | None = None,
        rate: str | None = None,
        head_dim: int = 16,
        layer_types: Any = KINDS,
        rope_parameters: dict[str, Any] | None = None,
    ) -> None:
        vars(self).update({name: value for name, value in locals().items() if name != "self"})

    def to_dict(self) -> dict[str, Any]:
        """What marks a configuration."""
        return vars(self)


class Model(nn.Module):
    """Reads what its configuration leaves open."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.kinds = [config.mlp_layer_types[i] for i in range(config.num_hidden_layers)]
        self.pairs = nn.ModuleList(nn.Linear(2, 2) for _ in range(len(config.layer_map)))
        self.rate = [int(part) for part in config.rate.split("/")]
        self.bases = [config.rope_parameters[kind]["rope_theta"] for kind in config.layer_types]


class Part(nn.Module):
    """A model of a part of a composite configuration alone, that its library lists for the composite."""

    config_class = Config

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(config.head_dim, 2)


class Composite:
    """A configuration whose part says the size of its pictures, which must be the one that it says itself."""

    model_type = "made-up composite"

    def __init__(self, patch_size: int = 384, eyes: Any = None, words: Any = None) -> None:
        self.patch_size, self.eyes, self.words = patch_size, eyes or Eyes(), words or Config()
        if self.eyes.image_size != patch_size:
            raise ValueError(
                f"`config.eyes.image_size={self.eyes.image_size}` should match `config.patch_size={patch_size}`."
            )

    def to_dict(self) -> dict[str, Any]:
        """What marks a configuration."""
        return vars(self)


class Eyes:
    """The part that sees."""

    model_type = "made-up eyes"

    def __init__(self, image_size: int = 384, patch_size: int = 14) -> None:
        self.image_size, self.patch_size = image_size, patch_size

    def to_dict(self) -> dict[str, Any]:
        """What marks a configuration."""
        return vars(self)


@pytest.mark.parametrize(
    ("annotation", "numbers", "lists", "words"),
    [
        ("int | None", True, False, False),
        ("Optional[int]", True, False, False),
        ("int | list[int]", True, False, False),
        ("", True, False, False),
        ("list[str] | None", False, True, False),
        ("list | None", False, True, False),
        ("Optional[List[int]]", False, True, False),
        ("str | None", False, False, True),
        ("dict[str, int] | None", False, False, False),
    ],
)
def test_an_annotation_says_whether_a_setting_is_a_number_a_list_or_a_word(
    annotation: str, numbers: bool, lists: bool, words: bool
) -> None:
    assert (takes_numbers(annotation), takes_lists(annotation), takes_words(annotation)) == (numbers, lists, words)


def test_lists_and_words_are_those_of_the_documentation() -> None:
    assert list_for("mlp_layer_types", Config()) == ["dense", "sparse", "sparse"]
    assert list_for("layer_map", Config()) == [[0, 0]]
    assert list_for("extras", Config()) == []
    assert word_for("rate", Config()) == "1/4"
    assert word_for("extras", Config()) is None


def test_a_model_is_built_from_a_configuration_that_leaves_lists_words_and_rotations_open() -> None:
    model = built(Model, Config(rope_parameters={}))
    assert model.kinds == ["dense", "sparse", "sparse"]
    assert len(model.pairs) == 1
    assert model.rate == [1, 4]
    assert model.bases == [10_000.0, 10_000.0]


def test_a_class_of_a_part_is_built_from_the_part() -> None:
    assert type(prepared(Composite, {}, Part, SMALL).config) is Config


def test_what_was_made_small_decides_where_two_settings_must_be_alike() -> None:
    small = tiny(Composite, {})
    assert small.eyes.image_size == small.patch_size == 56
    assert configured(Composite, {"eyes": Eyes(28)}).patch_size == 28


def test_a_pyramid_without_levels_gets_one() -> None:
    class Pyramid(Config):
        """Levels of maps."""

        def __init__(self, projector_scale_factors: Any = (), **more: Any) -> None:
            super().__init__(**more)
            self.projector_scale_factors = projector_scale_factors

    assert shrunk(Pyramid(), SMALL, [])["projector_scale_factors"] == [1.0]
    assert "projector_scale_factors" not in shrunk(Pyramid((2.0,)), SMALL, [])
