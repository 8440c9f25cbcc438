"""The output formats, each against its consumer's rules."""

from __future__ import annotations

import json
import os
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gradscope.gate.outcome import Outcome
from gradscope.report.formats.github import MAX_PER_KIND, github
from gradscope.report.formats.registry import PLAIN_FORMATS
from gradscope.report.formats.render import render_outcomes
from gradscope.rules.finding import Diagnosis
from tests.report.samples import HOSTILE_NAMES, finding, healthy, hostile, nothing_measured, outcome, sick

SARIF_PART = json.loads(Path(__file__).with_name("sarif_part.schema.json").read_text())


@pytest.fixture(autouse=True)
def outside_of_any_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the variables of the machine the tests run on out of the results."""
    for name in ("GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)


SAMPLES = {"sick": sick, "healthy": healthy, "hostile": hostile, "nothing": nothing_measured}


def text_of(name: str, *outcomes: Outcome) -> str:
    return render_outcomes(name, outcomes, None)


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("name", ["full", *PLAIN_FORMATS])
def test_every_format_renders_everything_and_can_be_written_as_utf8(name: str, sample: str) -> None:
    text = text_of(name, outcome(SAMPLES[sample]()), outcome(SAMPLES[sample](), "second"))
    text.encode("utf-8")
    assert "\x1b" not in text
    assert text.endswith("\n") or not text


@pytest.mark.parametrize("name", [n for n in PLAIN_FORMATS if n not in ("json",)] + ["full"])
def test_every_format_shows_code_and_culprit(name: str) -> None:
    text = text_of(name, outcome(sick()))
    assert "GS101" in text
    assert "layers.0" in text


# SARIF ----------------------------------------------------------------------------------------------------------------


def sarif_schema() -> dict[str, Any]:
    """The official schema where GRADSCOPE_SARIF_SCHEMA names a copy, else the part of it that gradscope writes."""
    official = os.environ.get("GRADSCOPE_SARIF_SCHEMA")
    return json.loads(Path(official).read_text()) if official else SARIF_PART


@pytest.mark.parametrize("sample", SAMPLES)
def test_sarif_is_valid(sample: str) -> None:
    pair = SAMPLES[sample]()
    found = outcome(pair, known=(finding("GS203", "warning", "layers.1"),))
    jsonschema.validate(json.loads(text_of("sarif", found)), sarif_schema())


def test_sarif_names_rule_level_place_and_source() -> None:
    run = json.loads(text_of("sarif", outcome(sick())))["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    first = run["results"][0]
    assert rules[first["ruleIndex"]]["id"] == first["ruleId"] == "GS101"
    assert rules[first["ruleIndex"]]["help"]["markdown"]
    assert first["level"] == "error"
    assert first["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "model.py"
    assert first["locations"][0]["physicalLocation"]["region"]["startLine"] == 41
    assert first["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] == "layers.0"
    assert [result["level"] for result in run["results"]] == ["error", "warning", "note"]


def fingerprints(*outcomes: Outcome) -> list[str]:
    results = json.loads(text_of("sarif", *outcomes))["runs"][0]["results"]
    return [result["partialFingerprints"]["gradscopeFinding/v1"] for result in results]


def test_fingerprints_survive_unrelated_edits_and_differ_between_findings() -> None:
    recording, _ = sick()

    def found(**changes: Any) -> list[str]:
        findings = (finding("GS101", "error", "layers.0", **changes), finding("GS101", "error", "layers.1", **changes))
        return fingerprints(outcome((recording, Diagnosis("at-risk", "", findings, {}))))

    before = found(message="It shrinks by 4.8 decades.", line=41)
    after = found(message="It shrinks by 4.9 decades.", line=57, file="moved.py")
    assert before == after
    assert len(set(before)) == 2


def test_equal_findings_have_fingerprints_of_their_own() -> None:
    recording, _ = sick()
    twice = (finding("GS101", "error", "layers.0"), finding("GS101", "error", "layers.0"))
    assert len(set(fingerprints(outcome((recording, Diagnosis("at-risk", "", twice, {})))))) == 2


# GitHub ---------------------------------------------------------------------------------------------------------------

COMMAND = re.compile(r"^::(error|warning|notice) ((?:[a-z]+=[^,:\r\n]*)(?:,[a-z]+=[^,:\r\n]*)*)::([^\r\n]*)$")


def unescaped(text: str) -> str:
    for sign, code in ((",", "%2C"), (":", "%3A"), ("\n", "%0A"), ("\r", "%0D"), ("%", "%25")):
        text = text.replace(code, sign)
    return text


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    parsed = []
    for line in text.splitlines():
        if line.startswith("::"):
            found = COMMAND.match(line)
            assert found, line
            pairs = dict(part.split("=", 1) for part in found[2].split(","))
            parsed.append((found[1], {key: unescaped(value) for key, value in pairs.items()}, unescaped(found[3])))
    return parsed


def test_github_annotations_carry_file_line_title_and_message() -> None:
    parsed = commands(text_of("github", outcome(sick())))
    assert [kind for kind, _, _ in parsed] == ["error", "warning", "notice"]
    _, properties, message = parsed[0]
    assert properties == {"file": "model.py", "line": "41", "title": "GS101 layers.0"}
    assert message.startswith("The gradient shrinks by 4.8 decades.\nMend it.")
    assert "file" not in parsed[2][1]


def test_github_commands_survive_hostile_names() -> None:
    recording, diagnosis = hostile()
    few = [Diagnosis(diagnosis.verdict, diagnosis.reason, (found,), {}) for found in diagnosis.findings]
    for name, one in zip(HOSTILE_NAMES, few, strict=True):
        parsed = commands(github([outcome((recording, one), name)]))
        assert len(parsed) == 1, name
    comma = commands(github([outcome((recording, few[HOSTILE_NAMES.index("::error::no, 100%")]))]))[0]
    assert comma[1]["title"] == "GS101 ::error::no, 100%"


def test_github_stays_within_its_limits_and_says_what_is_left() -> None:
    recording, _ = sick()
    many = tuple(finding("GS303", "warning", f"layers.{number}") for number in range(37))
    text = github([outcome((recording, Diagnosis("at-risk", "", many, {})))])
    parsed = commands(text)
    assert len(parsed) == MAX_PER_KIND
    assert parsed[-1][2].startswith("28 more")
    for number in range(37):
        assert f"layers.{number}" in text


# JUnit, GitLab, concise, Markdown -------------------------------------------------------------------------------------


def test_junit_counts_and_shows_failures() -> None:
    root = ET.fromstring(text_of("junit", outcome(sick()), outcome(healthy(), "second")))
    assert root.tag == "testsuites"
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("4", "1", "0")
    first, second = root.findall("testsuite")
    assert first.get("tests") == str(len(first.findall("testcase")))
    failure = first.find("testcase/failure")
    assert failure is not None
    assert failure.get("type") == "GS101"
    assert "model.py:41" in (failure.text or "")
    assert second.find("testcase/failure") is None


def test_gitlab_issues_have_what_gitlab_requires() -> None:
    issues = json.loads(text_of("gitlab", outcome(sick()), outcome(hostile(), "second")))
    assert len({issue["fingerprint"] for issue in issues}) == len(issues)
    for issue in issues:
        assert issue["description"]
        assert issue["check_name"].startswith("GS")
        assert issue["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert not issue["location"]["path"].startswith(("/", "./"))
        assert issue["location"]["lines"]["begin"] >= 1


def test_concise_is_one_line_per_finding_as_compilers_print() -> None:
    lines = text_of("concise", outcome(sick())).splitlines()
    assert lines[0] == "model.py:41: GS101 error layers.0: The gradient shrinks by 4.8 decades."
    assert lines[-1] == "model.py: will-not-train, 1 error, 1 warning, 1 remark"
    assert len(text_of("concise", outcome(hostile())).splitlines()) == len(HOSTILE_NAMES) + 1


def test_markdown_has_as_many_cells_in_every_row_and_no_live_markup() -> None:
    text = text_of("markdown", outcome(hostile(), HOSTILE_NAMES[2]))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == len(HOSTILE_NAMES) + 2
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) == 7, row


def test_markdown_tells_how_the_target_was_loaded() -> None:
    recording, diagnosis = sick()
    notes = ("Only the decoder of Whole, in miniature.",)
    recording = replace(recording, provenance=replace(recording.provenance, notes=notes))
    text = text_of("markdown", outcome((recording, diagnosis), "model.py"))
    assert "Only the decoder of Whole, in miniature. Inputs: " in text


def test_markdown_makes_running_text_inert() -> None:
    recording, _ = sick()
    told = "<script> @someone [link](javascript:x) *bold* `code` a|b"
    one = (finding("GS101", "error", "", message=told, advice="", file=None),)
    text = text_of("markdown", outcome((recording, Diagnosis("at-risk", told, one, {})), "model.py"))
    assert "&lt;script&gt; @&#8203;someone \\[link\\](javascript:x) \\*bold\\* \\`code\\` a&#124;b" in text
    for live in ("<script>", "@someone", "[link]", "*bold*"):
        assert live not in text.replace("\\[", "").replace("\\*", "")


def test_a_finding_in_the_baseline_is_suppressed_in_sarif_only() -> None:
    pair = healthy()
    found = outcome(pair, known=(finding("GS203", "warning", "layers.1"),))
    results = json.loads(text_of("sarif", found))["runs"][0]["results"]
    assert results[0]["suppressions"][0]["kind"] == "external"
    assert "GS203" not in text_of("concise", found)
    assert "1 known" in text_of("concise", found)


def test_several_targets_make_one_json_document() -> None:
    content = json.loads(text_of("json", outcome(sick()), outcome(healthy(), "second")))
    assert content["schema"] == 1
    assert [run["verdict"] for run in content["runs"]] == ["will-not-train", "will-train"]


def test_files_are_named_from_the_root_of_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "models" / "text"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("CI_PROJECT_DIR", raising=False)
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    assert commands(text_of("github", outcome(sick())))[0][1]["file"] == "models/text/model.py"
    monkeypatch.setenv("GITHUB_WORKSPACE", "/somewhere/else")
    assert commands(text_of("github", outcome(sick())))[0][1]["file"] == "model.py"
    monkeypatch.delenv("GITHUB_WORKSPACE")
    monkeypatch.setenv("CI_PROJECT_DIR", str(tmp_path))
    assert json.loads(text_of("gitlab", outcome(sick())))[0]["location"]["path"] == "models/text/model.py"


def test_full_names_each_of_several_runs_and_is_short_about_clean_ones() -> None:
    pair = (outcome(sick(), "generator"), outcome(healthy(), "discriminator"))
    assert text_of("full", *pair).count("Blocks") == 2
    text = render_outcomes("full", pair, None, brief=True)
    assert "── generator" in text
    assert "discriminator  no findings" in text
    assert text.count("Blocks") == 1
    assert "──" not in text_of("full", outcome(sick(), "generator")).split("Gradient along")[0]
