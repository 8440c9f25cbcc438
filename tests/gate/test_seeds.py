"""Several seeds: what most of them show counts."""

from __future__ import annotations

from gradscope.gate.seeds import agreed
from gradscope.rules.finding import Diagnosis, Finding
from tests.report.samples import finding


def seed(verdict: str, *findings: Finding) -> Diagnosis:
    return Diagnosis(verdict, f"reason of {verdict}", findings, {})  # type: ignore[arg-type]


ERROR, WARNING = finding("GS101", "error", "layers.0"), finding("GS101", "warning", "layers.0")
OTHER = finding("GS303", "error", "layers.5")


def test_one_seed_is_left_as_it_is() -> None:
    one = seed("at-risk", ERROR)
    assert agreed([one]) is one


def test_a_finding_of_a_minority_is_dropped_and_of_a_majority_kept() -> None:
    few = agreed([seed("will-not-train", ERROR), seed("will-train"), seed("will-train")])
    assert (few.verdict, few.findings) == ("will-train", ())
    many = agreed([seed("will-train"), seed("will-not-train", ERROR), seed("will-not-train", ERROR)])
    assert many.verdict == "will-not-train"
    assert [found.code for found in many.findings] == ["GS101"]
    assert many.reason == "reason of will-not-train"


def test_a_severity_is_what_most_reach() -> None:
    diagnosis = agreed([seed("at-risk", ERROR), seed("at-risk", WARNING), seed("at-risk", WARNING)])
    assert [found.severity for found in diagnosis.findings] == ["warning"]
    diagnosis = agreed([seed("at-risk", ERROR), seed("at-risk", ERROR), seed("at-risk", WARNING)])
    assert [found.severity for found in diagnosis.findings] == ["error"]


def test_a_first_seed_below_the_majority_does_not_hold_the_severity_down() -> None:
    diagnosis = agreed([seed("at-risk", WARNING), seed("will-not-train", ERROR), seed("will-not-train", ERROR)])
    assert [found.severity for found in diagnosis.findings] == ["error"]


def test_half_is_no_majority() -> None:
    assert agreed([seed("at-risk", ERROR), seed("will-train")]).findings == ()


def test_errors_come_first() -> None:
    diagnosis = agreed([seed("at-risk", WARNING, OTHER)] * 3)
    assert [found.code for found in diagnosis.findings] == ["GS303", "GS101"]
