"""What an input of a transformers model is by its name, where forward will not go without it.

The names are conventions that many models share: prompts of segmentation models, grids of patches, spectrograms.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gradscope.target.infer.documented import UNTOLD
from gradscope.target.infer.guess import BATCH, Guess

if TYPE_CHECKING:
    from gradscope.target.hf.read import Facts

TOKENS = 16
"""Tokens of a made-up text."""
GRID = 4
"""Patches a side of a picture that is given as patches or as a map of features."""
LOWEST_ID = 4
"""Ids below are usually padding and the like."""
PICTURE_FLAG, VIDEO_FLAG, SOUND_FLAG = 1, 2, 3
"""What stands for each in an input that tells placeholders from words."""
PROMPTS = 2
"""Points a prompt holds."""
FINER = (4, 2)
"""How much finer the two maps of high resolution are than the last one."""
THINNER = (8, 4)
"""How much fewer channels they have."""

ANY_MASK = r"mask"
"""A mask of tokens, unless it is told to be a picture."""
MAP_AXES = 4
"""Axes of a picture or a map: samples, channels, rows and columns."""

Make = Callable[["Facts", int], Guess]


def named(name: str, length: int, facts: Facts, told: Guess | None = None) -> Guess:
    """Return what an input is by its name, else what it is told to be; hidden states where nothing says what.

    Args:
        name: The name.
        length: Tokens of the text beside it.
        facts: Sizes out of the configuration.
        told: What the documentation says of it.
    """
    is_map = told is not None and len(told.shape) == MAP_AXES
    for pattern, make in _TABLE:
        if pattern.search(name) and not (is_map and pattern.pattern == ANY_MASK):
            return make(facts, length)
    if told is not None:
        return replace(told, kind="float") if told.kind == UNTOLD else told
    return Guess("float", (BATCH, TOKENS, facts.width))


def _map(facts: Facts, finer: int = 1, thinner: int = 1) -> Guess:
    return Guess("float", (BATCH, max(facts.width // thinner, 1), GRID * finer, GRID * finer))


def _maps(facts: Facts, length: int) -> Guess:
    parts = (_map(facts, finer, thinner) for finer, thinner in zip(FINER, THINNER, strict=True))
    return Guess("tuple", parts=tuple((str(i), part) for i, part in enumerate(parts)))


def _pyramid(facts: Facts, length: int) -> Guess:
    """Maps of one width, the coarsest last."""
    return Guess("tuple", parts=tuple((str(i), _map(facts, finer)) for i, finer in enumerate((*FINER, 1))))


def _one_map(facts: Facts, length: int) -> Guess:
    return Guess("tuple", parts=(("0", _map(facts)),))


_NAMES: tuple[tuple[str, Make], ...] = (
    # prompts of segmentation models
    (r"^sparse_prompt", lambda f, n: Guess("float", (BATCH, 1, PROMPTS, f.width))),
    (r"image_embeddings|image_positional|dense_prompt", lambda f, n: _map(f)),
    (r"^high_resolution", _maps),
    (r"^backbone_features$", _pyramid),
    (r"^(vision_features|img_feats|vision_pos)", _one_map),
    (r"^input_points$", lambda f, n: Guess("unit", (BATCH, 1, PROMPTS, 2))),
    (r"^input_labels$", lambda f, n: Guess("ids", (BATCH, 1, PROMPTS), high=2)),
    (r"^input_boxes$", lambda f, n: Guess("unit", (BATCH, 1, 4))),
    (r"^(input_)?masks$", lambda f, n: Guess("float", (BATCH, 1, *[4 * f.side // max(f.patch, 1)] * 2))),
    (r"^box_embeddings$", lambda f, n: Guess("unit", (BATCH, PROMPTS, 4))),
    (r"^box_mask$", lambda f, n: Guess("trues", (BATCH, PROMPTS))),
    (r"^box_labels$", lambda f, n: Guess("ids", (BATCH, PROMPTS), high=2)),
    (r"^(multimask_output|hq_token_only)$", lambda f, n: Guess("constant", value=False)),
    # pictures
    (r"spatial_shapes|target_sizes", lambda f, n: Guess("rows", (BATCH,), value=(GRID, GRID))),
    (r"position_ids$", lambda f, n: Guess("ids", (BATCH, GRID * GRID, 2), high=GRID)),
    # sound
    (r"spectrogram|^mel$|_mel$", lambda f, n: Guess("float", (BATCH, TOKENS, f.mel))),
    (r"time_?step$", lambda f, n: Guess("unit", (BATCH,))),
    # everything else
    (ANY_MASK, lambda f, n: Guess("mask", (BATCH, n))),
    (r"_ids$|tokens|codes?$", lambda f, n: Guess("ids", (BATCH, n), high=f.vocab, low=min(LOWEST_ID, f.vocab - 1))),
    (r"pixel|image", lambda f, n: Guess("float", (BATCH, f.channels, f.side, f.side))),
)
_TABLE = tuple((re.compile(pattern), make) for pattern, make in _NAMES)
"""The first pattern that is found in a name decides."""
