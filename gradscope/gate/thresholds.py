"""Overridden thresholds, sorted into those of the rules and those of the gate's own comparison."""

from __future__ import annotations

from collections.abc import Mapping

from gradscope.config import nearest
from gradscope.errors import ConfigError
from gradscope.gate.regression import RULE as REGRESSION
from gradscope.rules.registry import levels_of


def split_thresholds(overrides: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the rules' overrides by "CODE.name", and the comparison's levels by short name, defaults filled in.

    Raises:
        ConfigError: There is no such threshold.
    """
    levels = REGRESSION.defaults
    judged = {}
    for key, value in overrides.items():
        code, _, name = key.strip().partition(".")
        if code.upper() != REGRESSION.code:
            judged[key] = value
        elif name in levels:
            levels[name] = value
        else:
            raise ConfigError(f"there is no threshold '{key}'.", rule=nearest(name, levels), hint="gradscope rules")
    levels_of(judged)  # refuses unknown ones now, not after minutes of measuring
    return judged, levels
