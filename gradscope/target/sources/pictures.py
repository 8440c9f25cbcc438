"""Choose the size and number of pictures for a library's model so that a step stays short.

Shape legend: B pictures, C channels, S side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from gradscope.target.infer.search import FORWARD_FLOPS
from gradscope.target.infer.trial import Outcome
from gradscope.target.source import Offer, Trial
from gradscope.target.subject import Batch, Origin

Make = Callable[[int, int], Batch]
"""``make(batch_size, side)``."""

FEWEST = 2
"""Pictures in a trial: the fewest that BatchNorm can normalise."""
DEAR_FLOPS = 10 * FORWARD_FLOPS
"""Operations of a forward on the fewest pictures beyond which one alone is taken, where a model allows it."""
BATCH_SIZES = (8, 4)
SEED = 20


def picture(channels: int) -> Make:
    """Return a maker of normally distributed pictures B x C x S x S."""

    def make(batch_size: int, side: int) -> Batch:
        return (torch.randn(batch_size, channels, side, side, generator=torch.Generator().manual_seed(SEED)),)

    return make


def affordable(make: Make, sides: Sequence[int], trial: Trial, what: str) -> tuple[Offer, Outcome | None] | None:
    """Return the largest batch of the smallest pictures that a model takes, within FORWARD_FLOPS.

    Small pictures come first because they show the same architecture at a fraction of the time; more pictures come
    next because BatchNorm's statistics need samples.

    Args:
        make: Makes a batch.
        sides: Sides to try, in order.
        trial: Runs one forward of a scratch copy.
        what: The pictures in words, such as "normal pictures".
    """
    for side in sides:
        with FlopCounterMode(display=False) as counter:
            outcome = trial(make(FEWEST, side))
        if outcome is not None and not outcome.worked:
            continue
        flops = counter.get_total_flops() / FEWEST
        for batch_size in BATCH_SIZES:
            if flops * batch_size <= FORWARD_FLOPS:
                larger = trial(make(batch_size, side))
                if larger is None or larger.worked:
                    return _offer(make, batch_size, side, what), larger
        if flops * FEWEST > DEAR_FLOPS:
            outcome = None  # what its layers keep for a backward is given back first
            if (one := trial(make(1, side))) is not None and one.worked:
                return _offer(make, 1, side, what), one
        return _offer(make, FEWEST, side, what), outcome
    return None


def ascending(smallest: Sequence[int], full: int) -> Iterator[int]:
    """Yield sides up to the one of the library's configuration, which comes last."""
    yield from (side for side in smallest if side < full)
    yield full


def _offer(make: Make, batch_size: int, side: int, what: str) -> Offer:
    batch: Any = make(batch_size, side)
    return Offer(
        batch,
        Origin(f"{batch_size} {what} of {side} x {side}; --input or --inputs gives yours", synthetic=True),
    )
