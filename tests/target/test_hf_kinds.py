"""Inputs of several kinds for one model: a picture, a sound or a video beside it, each with its place in the text."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from torch import Tensor, nn

from gradscope.target.hf.guesses import guesses
from gradscope.target.hf.more import beside
from gradscope.target.hf.senses import pictures
from gradscope.target.hf.shrink import tiny
from gradscope.target.infer.guess import BATCH, Guess, Mark
from gradscope.target.infer.placeholders import with_run
from gradscope.target.infer.search import search_inputs
from tests.target.test_hf_miniatures import Config

WIDTH = 8
PICTURE, VIDEO, SOUND = 90, 91, 92


class Kinds(Config):
    """A configuration with a token for each kind of input."""

    def __init__(self, image_token_id: int = PICTURE, video_token_id: int = VIDEO, audio_token_id: int = SOUND) -> None:
        self.image_token_id, self.video_token_id, self.audio_token_id = image_token_id, video_token_id, audio_token_id
        self.vocab_size, self.image_size, self.num_frames, self.num_mel_bins = 100, 16, 2, 10


class Omni(nn.Module):
    """Puts the features of whatever it is given into its text, which must have as many placeholders."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(100, WIDTH), nn.Linear(WIDTH, 100)
        self.eyes, self.watching = nn.Conv2d(3, WIDTH, 8, 8), nn.Conv2d(3, WIDTH, 4, 4)
        self.ears = nn.Linear(10, WIDTH)

    def forward(
        self,
        input_ids: Tensor,
        pixel_values: Tensor | None = None,
        pixel_values_videos: Tensor | None = None,
        input_features: Tensor | None = None,
        feature_attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return logits."""
        x = self.words(input_ids)
        if pixel_values is not None:
            x = self._placed(x, input_ids == PICTURE, self.eyes(pixel_values).flatten(2).transpose(1, 2))
        if pixel_values_videos is not None:
            frames = self.watching(pixel_values_videos.flatten(0, 1)).flatten(2).transpose(1, 2)
            x = self._placed(x, input_ids == VIDEO, frames)
        if input_features is not None:
            x = self._placed(x, input_ids == SOUND, self.ears(input_features[feature_attention_mask.bool()]))
        return self.head(x)

    def _placed(self, x: Tensor, mask: Tensor, features: Tensor) -> Tensor:
        tokens, count = int(mask.sum()), features.shape[:-1].numel()
        if tokens != count:
            raise ValueError(f"features and placeholders do not match, tokens: {tokens}, features: {count}")
        return x.masked_scatter(mask[:, :, None], features)


def test_a_model_that_sees_hears_and_watches_is_given_all_three() -> None:
    model, config = Omni(), Kinds()
    extend = partial(beside, Omni, config)
    found = search_inputs(model, lambda: None, "omni", guesses(Omni, config), extend=extend)
    assert {"pixel_values", "pixel_values_videos", "input_features", "feature_attention_mask"} <= found.batch.keys()
    ids, frames = found.batch["input_ids"], found.batch["pixel_values_videos"]
    assert (ids == PICTURE).sum(1).unique().tolist() == [(found.batch["pixel_values"].shape[-1] // 8) ** 2]
    assert (ids == VIDEO).sum(1).unique().tolist() == [frames.shape[1] * (frames.shape[-1] // 4) ** 2]
    assert (ids == SOUND).sum(1).unique().tolist() == [found.batch["feature_attention_mask"].shape[1]]
    model(**found.batch).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_without_more_kinds_inputs_stay_as_they_were() -> None:
    config = Kinds()
    plain = search_inputs(Omni(), lambda: None, "omni", guesses(Omni, config))
    assert "pixel_values_videos" not in plain.batch
    assert not list(beside(nn.Linear, config, (("input", Guess("float", (BATCH, 4))),)))


def test_a_run_of_placeholders_has_a_length_of_its_own_and_lengthens_all_that_goes_with_the_text() -> None:
    text = Guess("ids", (BATCH, 28), high=90, marks=(Mark(PICTURE, 12),))
    candidate = (("input_ids", text), ("labels", Guess("ids", (BATCH, 28))), ("x", Guess("float", (BATCH, 5))))
    longer = dict(with_run(candidate, VIDEO, 2))
    assert longer["input_ids"].marks == (Mark(PICTURE, 12), Mark(VIDEO, 13, 2))
    assert (longer["input_ids"].shape, longer["labels"].shape) == ((BATCH, 41), (BATCH, 41))
    assert longer["labels"].marks == ()
    assert longer["x"].shape == (BATCH, 5)


@pytest.mark.parametrize("grid", ["image_grid_hw", "image_grid_thw", "grid_hws"])
def test_patches_come_in_one_axis_unfolded_or_for_each_picture_apart(grid: str) -> None:
    from gradscope.target.hf.read import read_facts

    config = tiny(Config, {})
    config.spatial_merge_size = 2
    ways = list(pictures({"pixel_values": None, grid: None}, read_facts(config)))
    shapes = [(way["pixel_values"].kind, way["pixel_values"].shape) for way in ways if grid in way]
    assert ("patches", (BATCH, 16, 768)) in shapes
    assert ("patches", (BATCH, 16, 32, 32, 3)) in shapes
    assert ("float", (BATCH, 16, 768)) in shapes
    assert ways[0][grid].value == ((1, 4, 4) if "thw" in grid else (4, 4))


def test_a_width_of_merged_patches_stays_that_of_the_patches_times_their_number() -> None:
    class Vision(Config):
        def __init__(self, hidden_size: int = 1536, merge_size: int = 2) -> None:
            self.hidden_size, self.merge_size = hidden_size, merge_size

    class Whole(Config):
        def __init__(self, vision_config: Any = None, out_hidden_size: int = 6144, hidden_size: int = 768) -> None:
            self.vision_config = vision_config or Vision()
            self.out_hidden_size, self.hidden_size = out_hidden_size, hidden_size

    small = tiny(Whole, {})
    assert small.out_hidden_size == 4 * small.vision_config.hidden_size == 256
    assert small.hidden_size == 64
