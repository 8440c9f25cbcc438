"""From which depth on a law crosses a limit, with an interval, or why that cannot be said. Without torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gradscope.experiments.depth_law import DepthLaw
from gradscope.experiments.depth_shapes import Shape
from gradscope.metrics.interval import Interval

FARTHEST = 16.0
"""How many times the greatest measured depth a law is followed; beyond it nothing is claimed."""

WIDEST = 8.0
"""Ratio of the interval's ends from which a breaking depth is no longer worth naming."""


@dataclass(frozen=True)
class BreakingDepth:
    """Where a law reaches a limit.

    Attributes:
        depth: Best estimate in blocks; None where the law does not reach the limit within reach.
        low: The fewest blocks that the data allow; None where they allow none within reach.
        high: The most; None where the data allow that it never does within reach.
        reach: The greatest depth that was looked at.
        shallowest: The least: the shallowest measured network. Below it nothing is claimed.
    """

    depth: float | None
    low: float | None
    high: float | None
    reach: float
    shallowest: float

    @property
    def already(self) -> bool:
        """Whether the shallowest network is past the limit, so that where it is crossed was not seen."""
        return self.depth == self.shallowest

    @property
    def open_below(self) -> bool:
        """Whether the data allow that the limit is crossed before the shallowest network."""
        return self.low == self.shallowest

    @property
    def known(self) -> bool:
        """Whether the depth has two ends close enough to be worth naming."""
        if self.depth is None or self.low is None or self.high is None or self.already:
            return False
        return self.high / self.low <= WIDEST


def breaking_depth(law: DepthLaw, limit: float) -> BreakingDepth:
    """Follow the law from the shallowest network on until |value| reaches the limit.

    The interval is the depths at which the law's prediction interval first touches the limit with one end, and has
    wholly crossed it.

    Args:
        law: What was fitted.
        limit: Size of the value that counts as broken.
    """
    shallowest, reach = min(point.depth for point in law.points), FARTHEST * law.deepest

    def largest(depth: float) -> float:
        low, high = _interval(law, depth)
        return max(abs(low), abs(high))

    def smallest(depth: float) -> float:
        low, high = _interval(law, depth)
        return 0.0 if low <= 0 <= high else min(abs(low), abs(high))

    def crossing(size: Callable[[float], float]) -> float | None:
        return _first_crossing(size, limit, shallowest, reach)

    best = crossing(lambda depth: abs(law.best.predict(depth).mean))
    return BreakingDepth(best, crossing(largest), crossing(smallest), reach, shallowest)


def _interval(law: DepthLaw, depth: float) -> tuple[float, float]:
    predicted = law.predict(depth)
    assert predicted.low is not None
    assert predicted.high is not None
    return predicted.low, predicted.high


def _first_crossing(size: Callable[[float], float], limit: float, depth: float, reach: float) -> float | None:
    """Return the fewest blocks, from `depth` on, at which the size reaches the limit; None when none within reach."""
    while depth <= reach:
        if size(depth) >= limit:
            return float(depth)
        # Steps of a per cent: finer than any interval, and quick for deep networks.
        depth += max(depth // 100, 1)
    return None


def describe(law: DepthLaw, limit: float, quantity: str, unit: str) -> str:
    """Say in one or two sentences what the law is and where it breaks.

    Args:
        law: What was fitted.
        limit: Size of the value that counts as broken.
        quantity: What the value is, as the subject of a sentence.
        unit: Its unit, as in "decades".
    """
    return f"{_describe_shape(law, quantity, unit)} {_describe_break(law, breaking_depth(law, limit), limit, unit)}"


def _describe_shape(law: DepthLaw, quantity: str, unit: str) -> str:
    best, interval = law.best, law.best.slope_interval
    rivals = [_NAMES[one.shape] for one in law.rivals]
    either = " or ".join([", ".join(rivals[:-1]), rivals[-1]] if len(rivals) > 1 else rivals)
    doubt = f"; the data do not rule out {either} law" if rivals else ""
    if best.shape == "flat":
        return f"{quantity} does not measurably depend on depth ({best.intercept:+.2f} {unit}){doubt}."
    return f"{quantity} {_CHANGES[best.shape](best.slope, interval, unit)}{doubt}."


def _per_block(slope: float, interval: Interval, unit: str) -> str:
    return f"changes by {slope:+.3f} {unit} ({interval.low:+.3f} to {interval.high:+.3f}) per block, exponentially"


def _per_decade(slope: float, interval: Interval, unit: str) -> str:
    return (
        f"changes by {slope:+.2f} {unit} ({interval.low:+.2f} to {interval.high:+.2f}) "
        "per factor of ten in depth, a power law"
    )


def _stream(growth: float, interval: Interval, unit: str) -> str:
    return f"is 0.5 log10(1 + {growth:.2g} L) {unit}, the law of a growing stream (Pre-LN)"


def _accelerating(slope: float, interval: Interval, unit: str) -> str:
    return f"changes faster and faster with depth, by about {slope:+.2g} {unit} times the square of the blocks"


_NAMES: dict[Shape, str] = {
    "flat": "no",
    "growing stream": "a growing stream's",
    "power law": "a power",
    "exponential": "an exponential",
    "accelerating": "an accelerating",
}
"""What each shape is called before the word law."""
_CHANGES: dict[Shape, Callable[[float, Interval, str], str]] = {
    "exponential": _per_block,
    "power law": _per_decade,
    "growing stream": _stream,
    "accelerating": _accelerating,
}


def _describe_break(law: DepthLaw, found: BreakingDepth, limit: float, unit: str) -> str:
    if found.already:
        return f"It is already past its limit ({limit:g} {unit}) at the shallowest ({found.shallowest:g} blocks)."
    if found.depth is not None and found.known:
        ends = f"{_round(found.high)} at most" if found.open_below else f"{_round(found.low)}-{_round(found.high)}"
        return f"It breaks ({limit:g} {unit}) at about {_round(found.depth)} blocks, {ends}."
    if found.low is None:
        return f"It stays within {limit:g} {unit} up to {_round(found.reach)} blocks, as far as the law is followed."
    if found.depth is None:
        return (
            f"It is not expected to reach {limit:g} {unit} within {_round(found.reach)} blocks, "
            f"but from {_round(found.low)} on the data do not rule it out."
        )
    first = f"the shallowest ({found.shallowest:g} blocks)" if found.open_below else f"{_round(found.low)} blocks"
    return (
        f"The data do not say where it breaks: from {first} on"
        + (f", by {_round(found.high)} at the latest." if found.high is not None else ", perhaps never.")
        + f" Sweep deeper than {law.deepest:g} blocks, or with more seeds."
    )


def _round(depth: float | None) -> str:
    """Two significant digits: no law knows more."""
    if depth is None or depth < 1:
        return "?"
    unit = 10 ** max(math.floor(math.log10(depth)) - 1, 0)
    return f"{round(depth / unit) * unit:g}"
