"""Baselines: known findings do not fail the gate, fixed ones are reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gradscope.errors import ConfigError
from gradscope.gate.baseline import known, read_baseline, stale, write_baseline
from gradscope.gate.outcome import exit_code, judge
from gradscope.gate.selection import Selection
from tests.report.samples import sick


def test_what_was_written_is_read_and_sets_findings_aside(tmp_path: Path) -> None:
    recording, diagnosis = sick()
    entries = [known("model.py", finding) for finding in diagnosis.findings[:1]]
    assert write_baseline(tmp_path / "baseline.json", entries) == 1
    baseline = read_baseline(tmp_path / "baseline.json")
    outcome = judge("m", recording, diagnosis, selection=Selection(), fail_on="error", baseline=baseline)
    assert [finding.code for finding in outcome.known] == ["GS101"]
    assert [finding.code for finding in outcome.diagnosis.findings] == ["GS303", "GS109"]
    assert exit_code([outcome]) == 0


def test_a_baseline_survives_other_lines_and_numbers_but_not_another_module() -> None:
    recording, diagnosis = sick()
    first = diagnosis.findings[0]
    baseline = frozenset({known("model.py", first)})

    def fails(changed: object) -> int:
        findings = replace(diagnosis, findings=(changed,))  # type: ignore[arg-type]
        return exit_code([judge("m", recording, findings, selection=Selection(), fail_on="error", baseline=baseline)])

    assert fails(replace(first, line=99, message="other numbers", call=1)) == 0
    assert fails(replace(first, module="layers.1")) == 1
    assert fails(replace(first, code="GS102")) == 1


def test_stale_entries_are_those_of_checked_targets_that_are_gone() -> None:
    _, diagnosis = sick()
    found, gone = known("model.py", diagnosis.findings[0]), known("model.py", diagnosis.findings[1])
    elsewhere = known("other.py", diagnosis.findings[1])
    assert stale({found, gone, elsewhere}, {found}, ["model.py"]) == (gone,)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"format": "gradscope-baseline", "schema": 9, "findings": []}',
     '{"format": "gradscope-baseline", "schema": 1}',
     '{"format": "gradscope-baseline", "schema": 1, "findings": [{"code": "GS101"}]}',
     '{"format": "gradscope-baseline", "schema": 1, "findings": [{"code": 1, "module": "", "target": ""}]}'],
)  # fmt: skip
def test_a_damaged_baseline_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "baseline.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match="baseline"):
        read_baseline(file)


def test_a_missing_baseline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such baseline"):
        read_baseline(tmp_path / "none.json")


@pytest.mark.parametrize(("fail_on", "code"), [("error", 1), ("warning", 1), ("never", 0)])
def test_fail_on(fail_on: str, code: int) -> None:
    recording, diagnosis = sick()
    outcome = judge("m", recording, diagnosis, selection=Selection(), fail_on=fail_on)  # type: ignore[arg-type]
    assert exit_code([outcome]) == code


def test_warnings_fail_only_where_asked() -> None:
    recording, diagnosis = sick()
    warning = replace(diagnosis, findings=diagnosis.findings[1:])
    for level, code in (("error", 0), ("warning", 1)):
        outcome = judge("m", recording, warning, selection=Selection(), fail_on=level)  # type: ignore[arg-type]
        assert exit_code([outcome]) == code
