"""Thresholds fitted on one half of the networks: the levels at which few that train are called failing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from benchmarks.calibration.cases import Case, rates

ALLOWED_FALSE_ALARMS = 0.04
"""False positive rate asked for on the fitted half, a little below the 0.05 that is wanted on the other."""

DECADES = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0)
KAPPA = (10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0, 50.0, 60.0, 80.0)
TOKEN_COSINE = (0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
ROUND = {"decades": DECADES, "kappa": KAPPA, "token_cosine": TOKEN_COSINE}
"""Candidates: round numbers, since the data do not tell finer ones apart."""


@dataclass(frozen=True)
class Rule:
    """A network fails where any of its numbers is beyond its level.

    Attributes:
        decades: Level of |D|, excess over the stream law, at the first step or the last watched one.
        kappa: Level of kappa_J at the first step.
        token_cosine: Level of the token cosine at the last station, at any watched step.
    """

    decades: float
    kappa: float
    token_cosine: float

    def flags(self, case: Case) -> bool:
        """Say whether the rule calls this network failing."""
        return case.verdict_nonfinite or any(
            _beyond(number, level)
            for number, level in (
                (excess(case), self.decades),
                (kappa(case), self.kappa),
                (token_cosine(case), self.token_cosine),
            )
        )


def excess(case: Case) -> float:
    """The larger of the decades between the ends of the stream, first and later."""
    known = [abs(case.numbers[key]) for key in ("excess_decades", "later_decades") if not math.isnan(case.numbers[key])]
    return max(known, default=math.nan)


def kappa(case: Case) -> float:
    """kappa_J at the first step."""
    return case.numbers["jacobian_anisotropy"]


def token_cosine(case: Case) -> float:
    """The larger token cosine of the first and the last watched step."""
    known = [case.numbers[key] for key in ("token_cosine", "later_token_cosine") if not math.isnan(case.numbers[key])]
    return max(known, default=math.nan)


def _beyond(number: float, level: float) -> bool:
    return not math.isnan(number) and number > level


def best_rule(some: Sequence[Case]) -> Rule:
    """Find the rule that finds most failures at the allowed rate of false alarms; the mildest among equals."""
    found: tuple[tuple[float, float, float], Rule] | None = None
    for levels in product(DECADES, KAPPA, TOKEN_COSINE):
        rule = Rule(*levels)
        hits, alarms, _, _ = rates(some, [rule.flags(case) for case in some])
        if alarms > ALLOWED_FALSE_ALARMS:
            continue
        rank = (hits, -alarms, sum(ROUND[name].index(level) / len(ROUND[name]) for name, level in vars(rule).items()))
        if found is None or rank > found[0]:
            found = (rank, rule)
    assert found is not None, "no rule stays below the allowed rate of false alarms"
    return found[1]
