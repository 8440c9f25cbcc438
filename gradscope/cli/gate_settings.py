"""The settings of one `check`, decided: the command line over the configuration over the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gradscope.cli.options import MeasuringOptions
from gradscope.cli.request import thresholds_for
from gradscope.config import Config
from gradscope.gate.baseline import Known, read_baseline
from gradscope.gate.outcome import FailOn, fail_level
from gradscope.gate.selection import ALL, Selection, check_codes, split_codes
from gradscope.gate.thresholds import split_thresholds
from gradscope.record import Recording
from gradscope.report.rulebook import ALL_RULES


@dataclass(frozen=True)
class GateOptions:
    """What stands on the command line; None or empty where the configuration decides."""

    select: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fail_on: str | None = None
    baseline: Path | None = None
    against: tuple[Path, ...] = ()
    seeds: int | None = None


@dataclass(frozen=True)
class GateSettings:
    """How findings are judged.

    Attributes:
        selection: Which findings count.
        fail_on: From which severity on a finding fails the gate.
        baseline: Findings accepted before.
        baseline_file: Where they were read from.
        thresholds: Overridden thresholds of the rules.
        comparison: Levels of the comparison with a saved run.
        against: Saved runs to compare with.
        seeds: How many seeds to measure; None for one, and more where the result lies close to a limit.
    """

    selection: Selection
    fail_on: FailOn
    baseline: frozenset[Known]
    baseline_file: Path | None
    thresholds: Mapping[str, float]
    comparison: Mapping[str, float]
    against: tuple[tuple[str, Recording], ...]
    seeds: int | None


def gate_settings(options: GateOptions, measuring: MeasuringOptions, config: Config) -> GateSettings:
    """Combine and check everything before anything is measured.

    Raises:
        ConfigError: Some code, level, threshold or file is wrong.
    """
    given = config.settings
    select = split_codes(options.select) or tuple(given.get("select", (ALL,)))
    select += split_codes(options.extend_select) or tuple(given.get("extend-select", ()))
    ignore = split_codes(options.ignore) or tuple(given.get("ignore", ()))
    codes = [rule.code for rule in ALL_RULES]
    check_codes([*select, *ignore, *(code for found in config.per_module_ignores.values() for code in found)], codes)
    judged, comparison = split_thresholds(thresholds_for(measuring, config))
    baseline_file = options.baseline or _path(given.get("baseline"))
    against = options.against or tuple(path for path in (_path(given.get("against")),) if path is not None)
    return GateSettings(
        selection=Selection(select, ignore, config.per_module_ignores),
        fail_on=fail_level(options.fail_on or given.get("fail-on", "error")),
        baseline=read_baseline(baseline_file) if baseline_file is not None else frozenset(),
        baseline_file=baseline_file,
        thresholds=judged,
        comparison=comparison,
        against=tuple((str(path), Recording.load(path)) for path in against),
        seeds=options.seeds or given.get("seeds"),
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
