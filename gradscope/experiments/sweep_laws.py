"""Rows of a sweep, and the laws of depth in them. Without torch."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradscope.experiments.breaking_depth import BreakingDepth, breaking_depth, describe
from gradscope.experiments.depth_law import SLOPED, DepthLaw, NoLaw, find_law
from gradscope.experiments.depth_shapes import Point, Shape
from gradscope.record import json_number

Number = float | int | None


@dataclass(frozen=True)
class Row:
    """One network of a sweep.

    Attributes:
        arguments: What its factory received.
        seed: Its seed.
        verdict: The judgement; None where it could not be measured.
        metrics: Headline numbers; None where not measured.
        error: Why it could not be measured.
    """

    arguments: Mapping[str, Any]
    seed: int
    verdict: str | None
    metrics: Mapping[str, Number]
    error: str | None = None

    def to_object(self) -> dict[str, Any]:
        """Return a JSON-ready object."""
        numbers = {name: None if value is None else json_number(value) for name, value in self.metrics.items()}
        return {
            "arguments": dict(self.arguments),
            "seed": self.seed,
            "verdict": self.verdict,
            "metrics": numbers,
            "error": self.error,
        }

    @classmethod
    def from_object(cls, content: Mapping[str, Any]) -> Row:
        """Rebuild a row."""
        numbers = {
            name: float(value) if isinstance(value, str) else value for name, value in content["metrics"].items()
        }
        return cls(dict(content["arguments"]), int(content["seed"]), content["verdict"], numbers, content["error"])


@dataclass(frozen=True)
class Quantity:
    """A number whose dependence on depth is fitted.

    Attributes:
        metric: Its name in the headline metrics.
        text: What it is, as the subject of a sentence.
        unit: Unit of the fitted value.
        value: Metric to fitted value; nan where it has none.
        limit: Size of the fitted value that counts as broken, and where it comes from.
        shapes: The laws that it may follow, the mildest first.
    """

    metric: str
    text: str
    unit: str
    value: Callable[[float], float]
    limit: float
    shapes: Sequence[Shape] = ("power law", "exponential", "accelerating")


def _log10(value: float) -> float:
    return math.log10(value) if value > 0 else math.nan


def _likeness(cosine: float) -> float:
    """-log10(1 - cosine): 1 at 0.9, 2 at 0.99; capped where float32 can no longer tell the tokens apart."""
    return -math.log10(max(1 - cosine, SMALLEST_DIFFERENCE))


SMALLEST_DIFFERENCE = 1e-6
"""Least 1 - cosine that is told from rounding in float32."""

DECADES_LIMIT = 3.5
"""|D| beyond which networks did not train with Adam, in decades (docs/calibration.md)."""
ANISOTROPY_LIMIT = 40.0
"""Jacobian anisotropy beyond which networks did not train (docs/calibration.md)."""
COSINE_LIMIT = 0.99
"""Token cosine from which tokens count as collapsed (docs/calibration.md)."""

QUANTITIES: tuple[Quantity, ...] = (
    # Only a gradient follows the stream it flows along.
    Quantity("decades", "The gradient's ratio start to end", "decades", float, DECADES_LIMIT, SLOPED),
    Quantity(
        "jacobian_anisotropy", "The Jacobian's anisotropy", "decades", _log10, round(math.log10(ANISOTROPY_LIMIT), 2)
    ),
    Quantity(
        "token_cosine", "The tokens' likeness, -log10(1 - cosine),", "decades", _likeness, -math.log10(1 - COSINE_LIMIT)
    ),
)


@dataclass(frozen=True)
class LawReport:
    """One quantity's law for one choice of the other arguments.

    Attributes:
        quantity: What was fitted.
        others: The arguments that do not change the number of blocks, for which it holds.
        law: The comparison of shapes; None where there is none.
        breaks: Where it reaches its limit.
        sentence: All of it in words.
    """

    quantity: Quantity
    others: Mapping[str, Any]
    law: DepthLaw | None
    breaks: BreakingDepth | None
    sentence: str

    def to_object(self) -> dict[str, Any]:
        """Return a JSON-ready object."""
        content: dict[str, Any] = {
            "metric": self.quantity.metric,
            "others": dict(self.others),
            "limit": self.quantity.limit,
            "unit": self.quantity.unit,
            "sentence": self.sentence,
            "shape": None,
        }
        if self.law is None or self.breaks is None:
            return content
        slope = self.law.best.slope_interval
        return content | {
            "shape": self.law.best.shape,
            "not_ruled_out": [one.shape for one in self.law.rivals],
            "intercept": self.law.best.intercept,
            "slope": slope.mean,
            "slope_low": slope.low,
            "slope_high": slope.high,
            "breaks_at": self.breaks.depth,
            "breaks_at_low": self.breaks.low,
            "breaks_at_high": self.breaks.high,
            "already_at_shallowest": self.breaks.already,
            "followed_to": self.breaks.reach,
            "points": [[point.depth, point.value] for point in self.law.points],
            "curve": curve(self.law),
        }


CURVE_POINTS = 32
"""Depths at which a law is drawn."""
CURVE_REACH = 4.0
"""How far beyond the deepest network it is drawn, as a factor."""


def curve(law: DepthLaw) -> list[list[float | None]]:
    """Sample a law for drawing: depth, predicted value, and the ends of its interval."""
    first = min(point.depth for point in law.points)
    ratio = CURVE_REACH * law.deepest / first
    depths = [first * ratio ** (i / (CURVE_POINTS - 1)) for i in range(CURVE_POINTS)]
    predicted = [(depth, law.predict(depth)) for depth in depths]
    return [[depth, interval.mean, interval.low, interval.high] for depth, interval in predicted]


def fit_laws(rows: Iterable[Row], axes: Sequence[str]) -> list[LawReport]:
    """Fit every quantity against the measured number of blocks, per choice of the arguments that leave it alone."""
    measured = [row for row in rows if row.error is None]
    constant = [axis for axis in axes if _varies(measured, axis) and not _moves_depth(measured, axis)]
    groups: dict[str, list[Row]] = {}
    for row in measured:
        groups.setdefault(json.dumps([row.arguments.get(axis) for axis in constant], default=str), []).append(row)
    reports = []
    for members in groups.values():
        others = {axis: members[0].arguments.get(axis) for axis in constant}
        reports += [report for quantity in QUANTITIES if (report := _report(quantity, others, members)) is not None]
    return reports


def _varies(rows: Sequence[Row], axis: str) -> bool:
    return len({json.dumps(row.arguments.get(axis), default=str) for row in rows}) > 1


def _moves_depth(rows: Sequence[Row], axis: str) -> bool:
    """Whether changing this argument alone changes the number of blocks."""
    blocks: dict[str, set[Number]] = {}
    for row in rows:
        rest = json.dumps([(k, v) for k, v in sorted(row.arguments.items()) if k != axis], default=str)
        blocks.setdefault(rest, set()).add(row.metrics.get("num_blocks"))
    return any(len(found) > 1 for found in blocks.values())


def _report(quantity: Quantity, others: Mapping[str, Any], rows: Sequence[Row]) -> LawReport | None:
    points = [
        Point(float(depth), quantity.value(float(value)))
        for row in rows
        if (depth := row.metrics.get("num_blocks")) and (value := row.metrics.get(quantity.metric)) is not None
    ]
    if not points:
        return None
    law = find_law(points, quantity.shapes)
    if isinstance(law, NoLaw):
        return LawReport(quantity, others, None, None, f"{quantity.text} by depth: {law.reason}.")
    sentence = describe(law, quantity.limit, quantity.text, quantity.unit)
    return LawReport(quantity, others, law, breaking_depth(law, quantity.limit), sentence)
