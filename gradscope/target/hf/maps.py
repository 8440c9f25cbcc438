"""Let a backbone put out as many of its maps as its model joins: by default one puts out its last alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from gradscope.target.hf.refit import Change
from gradscope.target.hf.settings import all_parts, named_parts, read_setting
from gradscope.target.infer.sizes import pairs_in

STAGES, PUT_OUT = "stage_names", "out_features"
"""What transformers calls the stages of a backbone, and those of them whose maps it returns."""


def more_maps(config: Any, message: str) -> Iterator[Change]:
    """Yield the changes that put out the last maps of a backbone, as many as make up for a misfit."""
    for got, want in dict.fromkeys(pairs_in(message)):
        for rank, (path, part) in enumerate(named_parts(config)):
            stages, now = read_setting(part, STAGES), read_setting(part, PUT_OUT)
            if not isinstance(stages, list) or not isinstance(now, list) or want * len(now) % got:
                continue
            count = want * len(now) // got
            if len(now) < count <= len(stages):
                changed = copy.deepcopy(config)
                setattr(list(all_parts(changed))[rank], PUT_OUT, stages[-count:])
                yield Change(changed, path + PUT_OUT, stages[-count:])
