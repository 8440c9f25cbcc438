"""Outcomes, predictors and peers' alarms of every network in one list."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.calibration import results
from benchmarks.calibration.training import BEGUN_SHARE


@dataclass(frozen=True)
class Case:
    """One network under one optimizer.

    Attributes:
        truth: trained, failed (never began to learn) or slow (began, but was not there after 300 steps).
        verdict: What gradscope says of it after eleven watched steps.
        numbers: Predictors by name; NaN where not measured.
        peers: Which other tools raise an alarm.
    """

    name: str
    family: str
    depth: int
    half: str
    optimizer: str
    truth: str
    verdict: str
    codes: frozenset[str]
    numbers: dict[str, float]
    peers: frozenset[str]

    @property
    def verdict_nonfinite(self) -> bool:
        """Whether a NaN or an infinity was met in the watched steps."""
        return "GS104" in self.codes


def cases() -> list[Case]:
    """Join the three tables; networks that lack one of them are left out."""
    predictors = {(row["name"], row["optimizer"]): row for row in results.read(results.PREDICTORS)}
    peers = {row["name"]: row for row in results.read(results.PEERS)}
    found = []
    for row in _best_outcomes():
        seen = predictors.get((row["name"], row["optimizer"]))
        if seen is None or row["name"] not in peers:
            continue
        alarms = peers[row["name"]]
        numbers = {key: _number(value) for key, value in seen.items() if key not in TEXT}
        found.append(
            Case(
                row["name"], row["family"], int(row["depth"]), row["half"], row["optimizer"], _truth(row),
                seen["verdict"], frozenset(seen["errors"].split()), numbers,
                frozenset(key for key, value in alarms.items() if value == "1"),
            )
        )  # fmt: skip
    return found


def _best_outcomes() -> list[dict[str, str]]:
    """One row for each network and optimizer: the better where it was tried again."""
    best: dict[tuple[str, str], dict[str, str]] = {}
    for row in results.read(results.OUTCOMES):
        key = (row["name"], row["optimizer"])
        if key not in best or float(row["share"]) < float(best[key]["share"]):
            best[key] = row
    return list(best.values())


TEXT = frozenset({"name", "optimizer", "verdict", "errors", "warnings"})


def decided(all_cases: Sequence[Case]) -> list[Case]:
    """Leave out the slow learners, which are neither."""
    return [case for case in all_cases if case.truth != "slow"]


def rates(some: Sequence[Case], flagged: Sequence[bool]) -> tuple[float, float, int, int]:
    """Return (true positive rate, false positive rate, failed, trained); NaN where there are none."""
    failed = [flag for case, flag in zip(some, flagged, strict=True) if case.truth == "failed"]
    trained = [flag for case, flag in zip(some, flagged, strict=True) if case.truth == "trained"]
    return _share(failed), _share(trained), len(failed), len(trained)


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else math.nan


def _truth(row: dict[str, str]) -> str:
    if row["trained"] == "1":
        return "trained"
    return "failed" if not float(row["share"]) < BEGUN_SHARE else "slow"


def _number(text: str) -> float:
    return float(text) if text else math.nan
