"""Pictures and sounds, in the ways in which models take them, most usual first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradscope.target.hf.names import GRID, TOKENS
from gradscope.target.hf.read import Facts, number_in
from gradscope.target.infer.guess import BATCH, Guess

FRAMES = 64
"""Moments of a made-up spectrogram."""
MOST_FRAMES = 4096
"""A setting for the length of a sound that is larger means something else."""
SAMPLES = 4000
"""Samples of a made-up wave: a quarter of a second."""
GRID_NAMES = ("image_grid_thw", "grid_thw", "image_grid_hw", "image_grid_hws", "grid_hw", "grid_hws")
"""Inputs that tell how many patches each picture has a side."""
PLACES = ("spatial_shapes", "pixel_position_ids", "image_position_ids")
"""Inputs that tell where each patch of a picture is from, beside the patches in one row a sample."""
AUDIO_NAMES = ("input_features", "input_values", "audio_values", "audio_input_values", "audio_features")
"""Inputs that hold a sound."""
PICTURE_NAMES = ("pixel_values", "pixel_values_videos", "pixel_values_images")
"""Inputs that hold pictures."""


def pictures(parameters: Mapping[str, Any], facts: Facts) -> Iterator[dict[str, Guess]]:
    """Yield inputs that hold pictures."""
    if "flattened_patches" in parameters:  # each with its row and its column in front
        inside = number_in(facts.config, "patch_embed_hidden_size", default=facts.channels * facts.patch**2)
        yield {"flattened_patches": Guess("unit", (BATCH, TOKENS, 2 + inside))}
    name = next((n for n in PICTURE_NAMES if n in parameters), None)
    yield from _patches(name, parameters, facts)
    if name is not None:
        yield from _with_sizes(name, parameters, facts)
        yield from _plain(name, parameters, facts)


def _patches(name: str | None, parameters: Mapping[str, Any], facts: Facts) -> Iterator[dict[str, Guess]]:
    """Patches, usually of all pictures in one axis, with the grid of each picture beside them."""
    grid = next((name for name in GRID_NAMES if name in parameters), None)
    if grid is not None:
        flat = name or next((n for n in ("hidden_states", "patches") if n in parameters), None)
        if flat is not None:
            told = facts.told.get(flat)
            size = (facts.channels * facts.temporal * facts.patch**2,)
            unfolded = (facts.channels, *[facts.temporal] * (facts.temporal > 1), facts.patch, facts.patch)
            sides = (1, GRID, GRID) if "thw" in grid else (GRID, GRID)
            merged = [n for n in parameters if n in ("merge_sizes", "image_merge_sizes")]
            side = facts.patch * number_in(facts.config, "spatial_merge_size", "merge_size", default=1)
            beside = {
                grid: Guess("rows", (BATCH,), value=sides),
                **{n: Guess("lengths", (BATCH,), high=2) for n in merged},  # two by two patches become one
            }
            documented = [told.shape[1:]] if told and BATCH not in told.shape else []
            for inside in dict.fromkeys([*documented, size, unfolded, (side, side, facts.channels)]):
                yield {flat: Guess("patches", (BATCH, GRID * GRID, *inside)), **beside}
            yield {flat: Guess("float", (BATCH, GRID * GRID, *size)), **beside}  # those of each picture apart


def _with_sizes(name: str, parameters: Mapping[str, Any], facts: Facts) -> Iterator[dict[str, Guess]]:
    """Pictures with an input beside them that says how large they are, or how they were cut."""
    if any(place in parameters for place in PLACES):
        yield {
            name: Guess("float", (BATCH, GRID * GRID, facts.channels * facts.patch**2)),
            **({n: Guess("rows", (BATCH,), value=(GRID, GRID)) for n in ("spatial_shapes",) if n in parameters}),
            **({m: Guess("mask", (BATCH, GRID * GRID)) for m in ("pixel_attention_mask",) if m in parameters}),
        }
    if "image_sizes" in parameters:
        yield {
            name: Guess("float", (BATCH, facts.channels, facts.side, facts.side)),
            "image_sizes": Guess("rows", (BATCH,), value=(facts.side, facts.side)),
        }
    if "aspect_ratio_ids" in parameters:  # a picture cut into tiles
        tiles = number_in(facts.config, "max_num_tiles", default=GRID)
        yield {
            name: Guess("float", (BATCH, 1, tiles, facts.channels, facts.side, facts.side)),
            "aspect_ratio_ids": Guess("ids", (BATCH, 1), high=2, low=1),
            "aspect_ratio_mask": Guess("mask", (BATCH, 1, tiles)),
        }


def _plain(name: str, parameters: Mapping[str, Any], facts: Facts) -> Iterator[dict[str, Guess]]:
    if isinstance(size := facts.size, list | tuple) and len(set(size)) == 2:  # noqa: PLR2004  # a strip: height and width
        yield {name: Guess("float", (BATCH, facts.channels, *size))}
    channels, side = facts.channels, facts.side
    yield {name: Guess("float", (BATCH, channels, side, side))}
    few = {"image_attention_mask": Guess("mask", (BATCH, TOKENS, 1))} if "image_attention_mask" in parameters else {}
    yield {name: Guess("float", (BATCH, 1, channels, side, side)), **few}
    for other in dict.fromkeys((64, 32, 224)):
        yield {name: Guess("float", (BATCH, channels, other, other))}
    yield {name: Guess("float", (BATCH, facts.frames, channels, side, side))}
    if (told := facts.told.get(name)) is not None:
        yield {name: Guess("float", told.shape)}
    yield {name: Guess("float", (BATCH, 2, channels, side, side))}  # a pair to match


def sounds(parameters: Mapping[str, Any], facts: Facts) -> Iterator[dict[str, Guess]]:
    """Yield inputs that hold sounds: spectrograms either way round, and waves."""
    name = next((n for n in AUDIO_NAMES if n in parameters), None)
    if name is None:
        return
    shapes: list[tuple[int, ...]] = [
        (BATCH, facts.mel, FRAMES),
        (BATCH, FRAMES, facts.mel),
        (BATCH, SAMPLES),
        (BATCH, 1, SAMPLES),
    ]
    if name != "input_features":
        shapes = shapes[2:] + shapes[:2]
    if isinstance(frames := getattr(facts.config, "max_length", None), int) and frames <= MOST_FRAMES:
        shapes.insert(0, (BATCH, frames, facts.mel))  # a spectrogram of a fixed length
    mask = next((n for n in ("input_features_mask", "feature_attention_mask") if n in parameters), None)
    for shape in shapes:
        yield {name: Guess("float", shape)}
    if mask is not None:
        yield {name: Guess("float", (BATCH, facts.mel, FRAMES)), mask: Guess("mask", (BATCH, FRAMES))}
        yield {name: Guess("float", (BATCH, FRAMES, facts.mel)), mask: Guess("mask", (BATCH, FRAMES))}
