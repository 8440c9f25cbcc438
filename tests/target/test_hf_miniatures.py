"""Small configurations and first inputs for model types, on made-up classes: no library is needed."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from gradscope.errors import MissingLibraryError
from gradscope.target.hf.guesses import feeds_several, guesses
from gradscope.target.hf.heads import can_run
from gradscope.target.hf.names import named
from gradscope.target.hf.settle import _unbuildable
from gradscope.target.hf.shrink import UNCHANGED, tiny
from gradscope.target.hf.sizes import smaller
from gradscope.target.infer.guess import BATCH, Guess, Mark
from gradscope.target.infer.lessons import lessons
from gradscope.target.infer.making import make
from gradscope.target.infer.roles import Hints
from gradscope.target.infer.trial import Outcome

HINTS = Hints(vocab=50, width=8, length=100, channels=3, side=32, classes=4)


class Config:
    """A configuration of a picture encoder whose stages and maps hang together."""

    model_type = "made-up"

    def __init__(
        self,
        image_size: Any = (1024, 1024),
        patch_size: int = 16,
        num_encoder_blocks: int = 4,
        depths: Any = (3, 4, 6, 3),
        feature_sizes: Any = ((64, 64), (32, 32)),
        vision_feature_layers: Any = (24, 18),
        image_token_id: Any = None,
        hidden_size: int = 768,
    ) -> None:
        vars(self).update({name: value for name, value in locals().items() if name != "self"})

    def to_dict(self) -> dict[str, Any]:
        """What marks a configuration."""
        return vars(self)


class Layered(Config):
    """A configuration that names the kind of each layer and has no window."""

    layer_types = ("full_attention",) * 2
    sliding_window = None


class Secretive(Config):
    """A configuration that refuses to tell a setting, as those do that differ from layer to layer."""

    @property
    def hidden_size(self) -> int:
        """Raise."""
        raise RuntimeError("differs from layer to layer")

    @hidden_size.setter
    def hidden_size(self, value: int) -> None:
        pass


def test_a_picture_in_two_numbers_is_made_small_and_the_maps_computed_from_it_as_well() -> None:
    small = tiny(Config, {})
    assert small.image_size == (64, 64)
    assert small.feature_sizes == [[4, 4], [2, 2]]


def test_the_count_of_stages_stays_and_a_choice_of_layers_is_one_of_few() -> None:
    small = tiny(Config, {})
    assert (small.num_encoder_blocks, small.depths) == (4, (2, 2, 2, 2))
    assert small.vision_feature_layers == (1, 0)


def test_a_placeholder_token_that_is_not_set_gets_an_id_of_its_own() -> None:
    assert tiny(Config, {}).image_token_id == 255


class Pooling(Config):
    """A configuration of a text model whose pictures become so many tokens."""

    def __init__(self, eyes: Any = None, mm_tokens_per_image: int = 256) -> None:
        self.eyes = Config(image_size=224) if eyes is None else eyes
        self.mm_tokens_per_image = mm_tokens_per_image


def test_a_small_picture_becomes_a_quarter_as_many_tokens_as_it_has_patches() -> None:
    assert tiny(Pooling, {}).eyes.image_size == 64
    assert tiny(Pooling, {}).mm_tokens_per_image == 4


def test_layers_that_attend_to_everything_are_among_those_that_are_left() -> None:
    class Windowed(Config):
        def __init__(self, global_attn_indexes: Any = (2, 5, 8, 11), num_hidden_layers: int = 12) -> None:
            self.global_attn_indexes, self.num_hidden_layers = global_attn_indexes, num_hidden_layers

    assert tiny(Windowed, {}).global_attn_indexes == (1,)


def test_a_part_that_names_its_architecture_keeps_the_sizes_of_that() -> None:
    class Named(Config):
        def __init__(self, architecture: str = "somenet", hidden_size: int = 3072) -> None:
            self.architecture, self.hidden_size = architecture, hidden_size

    class Composite(Config):
        def __init__(self, vision_config: Any = None, hidden_size: int = 768) -> None:
            self.vision_config, self.hidden_size = vision_config or Named(), hidden_size

    small = tiny(Composite, {})
    assert (small.hidden_size, small.vision_config.hidden_size) == (64, 3072)


class Eyes(Config):
    """A configuration of a backbone that hands some of its settings on to another library."""

    def __init__(self, backbone_args: Any = None, **settings: Any) -> None:
        super().__init__()
        vars(self).update(settings, backbone_args=backbone_args)


class Seeing(Config):
    """A composite that sets its backbone up in its own way."""

    def __init__(self, eyes: Any = None) -> None:
        self.eyes = Eyes(backbone_args={"features_only": True}, return_token=True) if eyes is None else eyes


def test_a_part_keeps_what_its_composite_set_up_by_name_or_not() -> None:
    small = tiny(Seeing, {}).eyes
    assert small.backbone_args == {"features_only": True}
    assert small.return_token is True
    assert small.image_size == (64, 64)


def test_the_last_level_changes_nothing() -> None:
    assert vars(tiny(Config, {}, UNCHANGED)) == vars(Config())


def test_a_setting_that_is_refused_is_left_alone() -> None:
    assert tiny(Secretive, {}).image_size == (64, 64)


class Seer(nn.Module):
    """Takes a text and a picture."""

    def forward(self, input_ids: Any = None, pixel_values: Any = None, labels: Any = None) -> None:
        """Not run."""


def test_a_model_of_two_kinds_of_input_is_first_fed_both() -> None:
    assert feeds_several(Seer)
    whole = [dict(candidate) for _, candidate in guesses(Seer, tiny(Config, {}))]
    assert whole
    assert all({"input_ids", "pixel_values"} <= inputs.keys() for inputs in whole)
    assert whole[0]["input_ids"].marks == (Mark(255, 16),)
    partial = [dict(candidate) for _, candidate in guesses(Seer, tiny(Config, {}), partial=True)]
    assert {"input_ids"} in [set(inputs) for inputs in partial]


def test_prompts_of_segmentation_models_are_told_by_their_names() -> None:
    from gradscope.target.hf.read import read_facts

    facts = read_facts(tiny(Config, {}))
    assert named("sparse_prompt_embeddings", 16, facts).shape == (BATCH, 1, 2, facts.width)
    assert named("image_embeddings", 16, facts).shape == (BATCH, facts.width, 4, 4)
    assert named("multimask_output", 16, facts).value is False


def test_a_placeholder_stands_only_where_it_was_put() -> None:
    ids = make(Guess("ids", (BATCH, 40), high=6, marks=(Mark(5, 8),)), 4, "input_ids")
    assert (ids == 5).sum(1).tolist() == [8] * 4
    assert torch.equal(ids[:, 2:10], torch.full((4, 8), 5))


def test_too_many_placeholders_become_fewer() -> None:
    candidate = (("input_ids", Guess("ids", (BATCH, 32), high=50, marks=(Mark(49, 16),))),)
    outcome = Outcome(error=RuntimeError("Number of elements of source < number of ones in mask"))
    counts = {dict(learnt)["input_ids"].marks[0].count for _, learnt in lessons(outcome, candidate, HINTS, {})}
    assert {8, 4, 1} <= counts


def test_features_that_are_counted_with_all_their_numbers_are_counted_as_features() -> None:
    candidate = (("input_ids", Guess("ids", (BATCH, 32), high=50, marks=(Mark(49, 16),))),)
    said = "Image features and image tokens do not match, tokens: 64, features: 128"  # 4 a sample, 8 numbers each
    learnt = [dict(c)["input_ids"] for _, c in lessons(Outcome(error=ValueError(said)), candidate, HINTS, {})]
    assert Guess("ids", (BATCH, 20), high=50, marks=(Mark(49, 4),)) in learnt
    assert Guess("ids", (BATCH, 48), high=50, marks=(Mark(49, 32),)) in learnt


def test_a_stack_of_several_kinds_of_layer_has_a_window() -> None:
    assert tiny(Layered, {}).sliding_window
    assert not hasattr(tiny(Config, {}), "sliding_window")


def test_an_input_that_the_message_asks_for_by_name_is_given() -> None:
    candidate = (("input_ids", Guess("ids", (BATCH, 20), high=50)),)
    outcome = Outcome(error=ValueError("`token_type_ids` is required as an input when training"))
    learnt = [dict(c) for _, c in lessons(outcome, candidate, HINTS, {}, ("token_type_ids", "position_ids"))]
    given = next(inputs["token_type_ids"] for inputs in learnt if "token_type_ids" in inputs)
    assert (given.shape, given.high) == ((BATCH, 20), 1)
    assert not any("position_ids" in inputs for inputs in learnt)


def test_a_library_that_a_model_cannot_be_built_without_is_named() -> None:
    wanted = ImportError("MadeUp requires the natten library but it was not found in your environment. You can install")
    error = _unbuildable("made-up", "hf:made-up", wanted)
    assert isinstance(error, MissingLibraryError)
    assert "needs natten" in str(error)
    assert "default configuration raised KeyError" in str(_unbuildable("made-up", "hf:made-up", KeyError("width")))
    assert "no model for" in str(_unbuildable("made-up", "hf:made-up", None))


def test_a_class_that_only_holds_parts_is_not_called() -> None:
    assert can_run(nn.Linear)
    assert not can_run(type("Holder", (nn.Module,), {}))


def test_what_a_chunk_sees_beside_itself_stays_shorter_than_the_chunk() -> None:
    assert smaller("chunk_right_context", 50) < smaller("chunk_length", 160)
