"""GS103: one block changes the gradient far more than its neighbours do."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.depth import Cliff, DepthProfile
from gradscope.metrics.expected import expected_decades
from gradscope.metrics.facts import Facts
from gradscope.rules import levels
from gradscope.rules.culprit import finding_at, station_module
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.numbers import factor, signed

LEAST_SPREAD_DECADES = 0.02
"""Floor of the spread (decades, log10): seed-to-seed spread of a well-behaved block, so that a perfectly regular stack
does not make every ripple a cliff."""


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Compare the largest jump with the robust spread of the other blocks."""
    steepest, profile = facts.cliff, facts.profile
    if steepest is None or profile is None:
        return []
    excess, spread = _unexplained(facts, profile, steepest), max(steepest.spread_decades, LEAST_SPREAD_DECADES)
    if abs(excess) < thresholds["decades"] or abs(excess) < thresholds["spreads"] * spread:
        return []
    station = profile.stations[steepest.index]
    module = station_module(station)
    verb = "loses" if excess < 0 else "grows by"
    amount = f"{factor(steepest.jump_decades)} times" if excess > 0 else f"a factor of {factor(steepest.jump_decades)}"
    return [
        finding_at(
            facts,
            "GS103",
            "warning",
            module,
            f"The gradient {verb} {amount} ({signed(steepest.jump_decades)} decades) in `{module}` alone; the other "
            f"blocks change it by {signed(steepest.usual_decades)} decades each.",
            {
                "jump_decades": steepest.jump_decades,
                "usual_decades": steepest.usual_decades,
                "spread_decades": steepest.spread_decades,
                "threshold_decades": thresholds["decades"],
            },
            (
                "Compare this block with its neighbours: a scale factor, a saturated activation, a pooling or a "
                "weight initialised unlike the others."
            ),
            station.call,
        )
    ]


def _unexplained(facts: Facts, profile: DepthProfile, steepest: Cliff) -> float:
    """Return the decades by which a jump goes beyond the other blocks' and, where it grows, beyond the stream law."""
    excess, law = steepest.excess_decades, expected_decades(facts, profile)
    if law is None or excess <= 0.0:
        return excess
    below = next(below for below, above in profile.blocks if above == steepest.index)
    return max(excess - max(law[below] - law[steepest.index], 0.0), 0.0)


DOC = RuleDoc(
    measures="""
The change of the gradient norm across each block, d_l = log10(‖g_{l-1}‖ / ‖g_l‖) in decades, at step 0. The largest
one is compared with the median of the others and their robust spread (1.48 times the median absolute deviation).""",
    why="""
A slow decay is a property of the whole design; a cliff is a bug in one place. The totals of GS101 and GS102 may still
look harmless when a cliff of two decades sits in an otherwise flat network.""",
    false_positives="""
Where the stream changes its width or resolution (a patch-merging layer, a strided stage) its L2 norm may jump by a
factor of a few. The embedding or stem is not counted as a block. Fewer than four blocks have no "usual" change.""",
    example="""
```python
x = x + 1e-3 * self.down(x)        # one layer of a plain stack scaled by hand: everything below gets a thousandth
```
(with the `x +` forgotten, as happens)""",
    advice="""
Look at the named block first. If it is meant to differ (another resolution, a bottleneck), raise `GS103.decades`.""",
    references=(
        "Schoenholz et al. 2017, Deep Information Propagation (arXiv:1611.01232): in theory all layers decay alike",
    ),
)

RULE = Rule(
    code="GS103",
    name="cliff",
    severity="warning",
    summary="One block changes the gradient far more than its neighbours do.",
    thresholds=(levels.WARN_CLIFF, levels.CLIFF_SPREADS),
    check=check,
    doc=DOC,
)
