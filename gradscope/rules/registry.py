"""All rules, in order of their codes."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence

from gradscope.errors import ConfigError
from gradscope.rules import (
    gs101_vanishing,
    gs102_exploding,
    gs103_cliff,
    gs104_nonfinite,
    gs105_dead,
    gs106_disconnected,
    gs107_through_time,
    gs108_anisotropic,
    gs109_zero_by_design,
    gs110_faint_weights,
    gs111_output_scale,
    gs201_swamping,
    gs202_idle_branch,
    gs203_cancelling,
    gs204_scaled_skip,
    gs205_no_skips,
    gs301_collapse,
    gs302_saturated,
    gs303_dead_units,
    gs304_attention,
    gs305_starved_queries,
    gs306_massive,
    gs307_softmax_axis,
    gs308_alike_units,
    gs401_underflow,
    gs402_overflow,
    gs403_absorption,
    gs404_low_precision,
    gs405_adam_epsilon,
    gs501_large_update,
    gs502_no_update,
    gs503_gradients_kept,
    gs504_graph_kept,
    gs601_few_samples,
    gs602_loss_mistake,
    gs603_unused,
    gs604_synthetic,
    gs605_far_targets,
)
from gradscope.rules.kind import Rule

MODULES = (
    gs101_vanishing,
    gs102_exploding,
    gs103_cliff,
    gs104_nonfinite,
    gs105_dead,
    gs106_disconnected,
    gs107_through_time,
    gs108_anisotropic,
    gs109_zero_by_design,
    gs110_faint_weights,
    gs111_output_scale,
    gs201_swamping,
    gs202_idle_branch,
    gs203_cancelling,
    gs204_scaled_skip,
    gs205_no_skips,
    gs301_collapse,
    gs302_saturated,
    gs303_dead_units,
    gs304_attention,
    gs305_starved_queries,
    gs306_massive,
    gs307_softmax_axis,
    gs308_alike_units,
    gs401_underflow,
    gs402_overflow,
    gs403_absorption,
    gs404_low_precision,
    gs405_adam_epsilon,
    gs501_large_update,
    gs502_no_update,
    gs503_gradients_kept,
    gs504_graph_kept,
    gs601_few_samples,
    gs602_loss_mistake,
    gs603_unused,
    gs604_synthetic,
    gs605_far_targets,
)


def register(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return the rules ordered by code.

    Raises:
        ValueError: Two rules share a code or a name, or two thresholds of a rule share a name.
    """
    codes, names = [rule.code for rule in rules], [rule.name for rule in rules]
    for labels in (codes, names, *([t.name for t in rule.thresholds] for rule in rules)):
        twice = sorted({label for label in labels if labels.count(label) > 1})
        if twice:
            raise ValueError(f"registered twice: {', '.join(twice)}")
    return tuple(sorted(rules, key=lambda rule: rule.code))


RULES: tuple[Rule, ...] = register([module.RULE for module in MODULES])


def rule(code: str) -> Rule:
    """Return a rule by its code or name, in any case.

    Raises:
        ConfigError: There is no such rule.
    """
    wanted = code.strip().lower()
    for known in RULES:
        if wanted in (known.code.lower(), known.name):
            return known
    labels = {label: known.code for known in RULES for label in (known.code.lower(), known.name)}
    digits = str.maketrans("oil", "011")  # letters that are taken for digits
    near = difflib.get_close_matches(wanted.translate(digits) if wanted.startswith("gs") else wanted, labels, 1, 0.0)
    raise ConfigError(f"there is no rule {code!r}.", hint=f"gradscope explain {labels[near[0]]}")


def levels_of(overrides: Mapping[str, float] | None) -> dict[str, dict[str, float]]:
    """Return the thresholds in force per rule: the defaults with `{"GS101.decades": 3.0}` laid over them.

    Raises:
        ConfigError: An unknown rule or threshold, or a value that is not a number.
    """
    levels = {known.code: known.defaults for known in RULES}
    names = [f"{code}.{name}" for code, own in levels.items() for name in own]
    for key, value in (overrides or {}).items():
        code, _, name = key.strip().partition(".")
        if name not in levels.get(code.upper(), {}):
            near = difflib.get_close_matches(key, names, 1, 0.0)
            raise ConfigError(
                f"there is no threshold {key!r}.", rule=f"The nearest one is {near[0]!r}.", hint=f"--set {near[0]}=3"
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise ConfigError(f"threshold {key} is set to {value!r}, which is not a number.", hint=f"--set {key}=3")
        levels[code.upper()][name] = float(value)
    return levels
