"""The gradient along the stream, in decades: how much of it reaches the start, and where it is lost or gained.

Conventions: station 0 is the start of the stream (embedding or stem output), station L its last block; g_l is the
gradient of the loss with respect to the activation at station l, its L2 norm taken over the whole batch tensor. All
numbers are ratios, so a factor on the loss, its reduction and the batch size cancel (a mean loss over a batch repeated
k times scales every ||g_l|| by 1/sqrt(k)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median

from gradscope.metrics.columns import log10_ratio
from gradscope.metrics.interval import Interval, mean_interval


@dataclass(frozen=True)
class Station:
    """A point of the stream: row, name, kind (start, addition, block, end), block, module and that module's call."""

    row: int
    name: str
    kind: str
    block: str | None
    module: str
    call: int


@dataclass(frozen=True)
class DepthProfile:
    """Gradient norms along the stream at one step.

    Attributes:
        step: The watched step.
        stations: The stations, from the input to the loss.
        grad_norm: ||g_l||_2 per station; None where none was seen.
        forward_norm: ||h_l||_2 per station.
        num_elements: Elements of h_l per station.
    """

    step: int
    stations: tuple[Station, ...]
    grad_norm: tuple[float | None, ...]
    forward_norm: tuple[float | None, ...]
    num_elements: tuple[int | None, ...]

    @cached_property
    def gradient_decades(self) -> tuple[float | None, ...]:
        """G_l = log10(||g_l|| / ||g_L||) per station; None where either is zero, non-finite or unknown."""
        top = self.grad_norm[self.ends[-1]] if self.grad_norm else None
        return tuple(log10_ratio(norm, top) for norm in self.grad_norm)

    @cached_property
    def gradient_decades_rms(self) -> tuple[float | None, ...]:
        """The same for the root mean square of g_l: differs by 0.5 log10(n_L / n_l) where widths change."""
        top = self.num_elements[self.ends[-1]] if self.num_elements else None
        if not top:
            return tuple(None for _ in self.stations)
        return tuple(
            None if decades is None or not count else decades + 0.5 * math.log10(top / count)
            for decades, count in zip(self.gradient_decades, self.num_elements, strict=True)
        )

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """Indices of the stations that split the stream into blocks: its starts and the end of every block.

        An encoder and its decoder are two streams, one after the other, each with a start of its own.
        """
        if all(station.kind != "block" for station in self.stations):
            return tuple(range(len(self.stations)))
        return tuple(i for i, station in enumerate(self.stations) if i == 0 or station.kind in ("start", "block"))

    @property
    def num_blocks(self) -> int:
        """Number of blocks along the stream."""
        return len(self.blocks)

    @cached_property
    def decades(self) -> float | None:
        """D = G_0 = log10(||g_0|| / ||g_L||): negative vanishes, positive explodes toward the input."""
        return self.gradient_decades[0] if self.gradient_decades else None

    @cached_property
    def decades_rms(self) -> float | None:
        """D of root mean squares instead of L2 norms."""
        return self.gradient_decades_rms[0] if self.gradient_decades_rms else None

    @cached_property
    def decades_from_first_block(self) -> float | None:
        """D1 = log10(||g_1|| / ||g_L||): without the embedding or stem, where the first step is often large."""
        if self.num_blocks < 2:  # noqa: PLR2004 - without the first block there would be none
            return None
        return self.gradient_decades[self.ends[1] if self.stations[0].kind == "start" else 0]

    @cached_property
    def increments(self) -> tuple[float | None, ...]:
        """Every block's d_l = G_{l-1} - G_l, from the input to the loss; negative where it shrinks the gradient."""
        pairs = [(self.gradient_decades[i], self.gradient_decades[j]) for i, j in self.blocks]
        return tuple(None if below is None or above is None else below - above for below, above in pairs)

    @cached_property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """Every block as the indices of the stations below and above it."""
        return tuple((i, j) for i, j in pairwise(self.ends) if self.stations[j].kind != "start")

    @cached_property
    def decades_per_block(self) -> Interval | None:
        """Mean increment with its interval over blocks: mean(d_l) +- t * sd(d_l) / sqrt(L)."""
        return mean_interval([step for step in self.increments if step is not None], "blocks")

    @cached_property
    def size_law(self) -> tuple[float, ...]:
        """log10(||h_L|| / ||h_l||) per station: G_l where the loss forgets the size of h_L; 0 where it is unknown."""
        end = self.forward_norm[self.ends[-1]]
        return tuple(log10_ratio(end, norm) or 0.0 for norm in self.forward_norm)

    @cached_property
    def lost_below(self) -> int | None:
        """Index of the lowest station with a gradient above zero when all stations below it have exactly zero."""
        first = next((i for i, norm in enumerate(self.grad_norm) if norm is None or norm > 0.0), None)
        return first if first else None

    @cached_property
    def scale_free_decades(self) -> float | None:
        """log10(||g_0|| ||h_0|| / (||g_L|| ||h_L||)): 0 for bias-free ReLU nets (Euler; Philipp 2017)."""
        forward = log10_ratio(self.forward_norm[0], self.forward_norm[-1]) if self.stations else None
        return None if forward is None or self.decades is None else self.decades + forward


def replicated_decades_per_block(profiles: Sequence[DepthProfile]) -> Interval | None:
    """Return decades per block over networks that differ in their seed only: one mean increment per network.

    Re-initialisation is the unit of replication; other batches of one initialisation are not independent.
    """
    means = [profile.decades_per_block.mean for profile in profiles if profile.decades_per_block]
    return mean_interval(means, "seeds")


@dataclass(frozen=True)
class Cliff:
    """The largest single jump of the gradient between two block ends.

    Attributes:
        index: Index of the block's upper station in the profile.
        jump_decades: d_l of that block.
        usual_decades: Median of the other blocks' d_l.
        spread_decades: Robust standard deviation of the other blocks' d_l (1.4826 * median absolute deviation).
    """

    index: int
    jump_decades: float
    usual_decades: float
    spread_decades: float

    @property
    def excess_decades(self) -> float:
        """How far the jump goes beyond the usual change of a block."""
        return self.jump_decades - self.usual_decades


NORMAL_MAD = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation (1 / Phi^-1(3/4))."""

FEWEST_BLOCKS_FOR_A_CLIFF = 4
"""Blocks (count) needed before one of them can be called unusual. Three others give a median of a middle one."""


def cliff(profile: DepthProfile, explained: Sequence[float] | None = None) -> Cliff | None:
    """Find the block at which the gradient changes most beyond what the others do; None for fewer than four blocks.

    Args:
        profile: The gradient along the stream.
        explained: Decades per station that a law explains and that are not counted.
    """
    law = explained or (0.0,) * len(profile.stations)
    changes = zip(profile.blocks, profile.increments, strict=True)
    steps = [(j, step - law[i] + law[j]) for (i, j), step in changes if step is not None]
    if len(steps) < FEWEST_BLOCKS_FOR_A_CLIFF:
        return None
    usual = median(step for _, step in steps)
    index, jump = max(steps, key=lambda pair: abs(pair[1] - usual))
    others = [step for i, step in steps if i != index]
    centre = median(others)
    return Cliff(index, jump, centre, NORMAL_MAD * median(abs(step - centre) for step in others))
