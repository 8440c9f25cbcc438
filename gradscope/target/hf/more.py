"""What else a model takes beside inputs that leave a part of it idle: a sound beside a picture, a video beside both."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from gradscope.target.hf.names import GRID, PICTURE_FLAG, SOUND_FLAG, VIDEO_FLAG
from gradscope.target.hf.read import Facts, read_facts
from gradscope.target.hf.senses import pictures, sounds
from gradscope.target.infer.guess import BATCH, Candidate, Guess
from gradscope.target.infer.placeholders import with_run

VIDEO = "pixel_values_videos"
VIDEO_GRID = "video_grid_thw"
MOST_WAYS = 3
"""Ways to give each kind of input that are tried."""


def beside(cls: type[nn.Module], config: Any, candidate: Candidate) -> Iterator[Candidate]:
    """Yield inputs with one kind more than before, and place for it in the text."""
    parameters = inspect.signature(cls.forward).parameters
    facts = read_facts(config, cls.forward)
    given = {name for name, _ in candidate}
    heard = sorted(sounds(parameters, facts), key=lambda way: -len(way))  # with their masks first
    for token, flag, ways in (
        (facts.audio_token, SOUND_FLAG, heard),
        (facts.image_token, PICTURE_FLAG, list(pictures(parameters, facts))),
        (facts.video_token, VIDEO_FLAG, list(_videos(parameters, facts))),
    ):
        if token is not None:
            longer = with_run(candidate, token, flag)
            yield from ((*longer, *way.items()) for way in ways[:MOST_WAYS] if given.isdisjoint(way))


def _videos(parameters: Mapping[str, Any], facts: Facts) -> Iterator[dict[str, Guess]]:
    """Yield videos, as the patches of all of them in one axis or as frames."""
    if VIDEO in parameters and VIDEO_GRID in parameters:
        size = facts.channels * facts.temporal * facts.patch**2
        grid = Guess("rows", (BATCH,), value=(1, GRID, GRID))
        yield {VIDEO: Guess("patches", (BATCH, GRID * GRID, size)), VIDEO_GRID: grid}
    if VIDEO in parameters:
        yield {VIDEO: Guess("float", (BATCH, facts.frames, facts.channels, facts.side, facts.side))}
