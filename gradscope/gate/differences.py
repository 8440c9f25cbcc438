"""Runs side by side: headline numbers with their spread over seeds, profiles aligned by block or by depth, findings."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gradscope.gate.profiles import block_labels
from gradscope.metrics.depth import DepthProfile
from gradscope.metrics.facts import Facts
from gradscope.record import Recording
from gradscope.rules.finding import Diagnosis

Judgement = Literal["better", "worse", "same", ""]

SPREADS = 2.0
"""Standard deviations of a difference (over seeds) within which two runs count as the same: about 1 in 20 exceed it."""

DEPTHS = tuple(tenth / 10 for tenth in range(11))
"""Relative depths (0 input, 1 loss end) at which profiles of different architectures are compared."""

_SHARED_NAMES = 0.5
"""Fraction of block names two runs must have in common to be aligned by name."""


@dataclass(frozen=True)
class Spread:
    """A number over seeds: its mean, and its standard deviation where there are several."""

    mean: float
    deviation: float | None


@dataclass(frozen=True)
class Contender:
    """One of the runs compared, measured with one seed or several.

    Attributes:
        name: What the user calls it.
        recordings: One per seed.
        diagnoses: Of each recording.
        diagnosis: What the seeds agree on.
    """

    name: str
    recordings: tuple[Recording, ...]
    diagnoses: tuple[Diagnosis, ...]
    diagnosis: Diagnosis

    def metric(self, name: str) -> Spread | None:
        """Return a headline number over the seeds; None where no seed has it."""
        return spread([diagnosis.metrics.get(name) for diagnosis in self.diagnoses])


@dataclass(frozen=True)
class Measured:
    """One headline number of all runs; `judgements` compare each with the first."""

    name: str
    values: tuple[Spread | None, ...]
    judgements: tuple[Judgement, ...]


@dataclass(frozen=True)
class Profiles:
    """Gradient along the stream relative to its end, in decades, of all runs at the same places.

    Attributes:
        places: Block names, or relative depths as text.
        by_name: Whether blocks were matched by name; else by relative depth.
        values: Per place one number per run.
    """

    places: tuple[str, ...]
    by_name: bool
    values: tuple[tuple[Spread | None, ...], ...]


@dataclass(frozen=True)
class _Scale:
    """How two values of a metric are judged: what is best, and the least difference that matters."""

    distance: Literal["from zero", "log"]
    least: float


_SCALES: Mapping[str, _Scale] = {
    "decades": _Scale("from zero", 0.1),  # a quarter more or less gradient
    "decades_per_block": _Scale("from zero", 0.01),
    "excess_decades": _Scale("from zero", 0.1),
    "jacobian_anisotropy": _Scale("log", 0.1),  # decades of the ratio: 25 %
    "token_cosine": _Scale("from zero", 0.02),
}
"""Metrics for which nearer to zero (or to one, on the log scale) is better, with judged least differences."""

COMPARED = (*_SCALES, "sample_cosine", "effective_path_length", "update_to_weight")


def measured(contenders: Sequence[Contender]) -> list[Measured]:
    """Return the headline numbers that any run has."""
    rows = []
    for name in COMPARED:
        values = tuple(contender.metric(name) for contender in contenders)
        if any(value is not None for value in values):
            rows.append(Measured(name, values, ("", *(_judged(name, values[0], value) for value in values[1:]))))
    return rows


def _judged(name: str, first: Spread | None, other: Spread | None) -> Judgement:
    scale = _SCALES.get(name)
    if scale is None or first is None or other is None:
        return ""
    before, after = (_badness(scale, value.mean) for value in (first, other))
    if not (math.isfinite(before) and math.isfinite(after)):
        return "same" if before == after else "worse" if after > before or math.isnan(after) else "better"
    noise = math.hypot(_deviation(scale, first), _deviation(scale, other))
    if abs(after - before) <= max(scale.least, SPREADS * noise):
        return "same"
    return "worse" if after > before else "better"


def _badness(scale: _Scale, value: float) -> float:
    if scale.distance == "log":
        return math.log10(value) if value > 0 else math.nan
    return abs(value)


def _deviation(scale: _Scale, value: Spread) -> float:
    if value.deviation is None:
        return 0.0
    if scale.distance == "log":
        return value.deviation / (value.mean * math.log(10)) if value.mean > 0 else 0.0
    return value.deviation


def spread(values: Sequence[float | int | None]) -> Spread | None:
    """Return mean and standard deviation of the known values."""
    known = [float(value) for value in values if value is not None]
    if not known:
        return None
    finite = all(math.isfinite(value) for value in known)
    return Spread(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 and finite else None)


def profiles(contenders: Sequence[Contender]) -> Profiles | None:
    """Align the profiles of the first watched step; None where fewer than two runs have one."""
    found = [[Facts(recording).profile for recording in contender.recordings] for contender in contenders]
    if sum(any(profile is not None for profile in seeds) for seeds in found) < 2:  # noqa: PLR2004  # a pair
        return None
    named = [[_by_name(profile) for profile in seeds if profile is not None] for seeds in found]
    places = list(dict.fromkeys(name for seeds in named for profile in seeds for name in profile))
    shared = [name for name in places if all(any(name in profile for profile in seeds) for seeds in named)]
    if len(shared) >= _SHARED_NAMES * len(places):
        values = [tuple(spread([p.get(place) for p in seeds]) for seeds in named) for place in places]
        return Profiles(tuple(places), True, tuple(values))
    sampled = [[_by_depth(profile) for profile in seeds if profile is not None] for seeds in found]
    values = [tuple(spread([p[at] for p in seeds]) for seeds in sampled) for at in range(len(DEPTHS))]
    return Profiles(tuple(f"{depth:.0%}" for depth in DEPTHS), False, tuple(values))


def _by_name(profile: DepthProfile) -> dict[str, float | None]:
    return {label: profile.gradient_decades[index] for label, index in block_labels(profile)}


def _by_depth(profile: DepthProfile) -> list[float | None]:
    values = [profile.gradient_decades[index] for index in profile.ends]
    return [_between(values, depth * (len(values) - 1)) for depth in DEPTHS]


def _between(values: Sequence[float | None], place: float) -> float | None:
    """Interpolate between two neighbouring blocks; unknown where either is."""
    below = min(int(place), len(values) - 1)
    above = min(below + 1, len(values) - 1)
    low, high = values[below], values[above]
    return None if low is None or high is None else low + (place - below) * (high - low)


def codes(contender: Contender) -> dict[str, int]:
    """Count a run's findings by code, remarks left out."""
    counted: dict[str, int] = {}
    for finding in contender.diagnosis.findings:
        if finding.severity != "info":
            counted[finding.code] = counted.get(finding.code, 0) + 1
    return counted
