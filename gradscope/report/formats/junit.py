"""`junit`: one test suite per target and one test case per finding, as CI servers read it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence

from gradscope.gate.outcome import Outcome
from gradscope.report.formats.summary import counted
from gradscope.report.names import shown_module, visible
from gradscope.rules.finding import Finding


def junit(outcomes: Sequence[Outcome]) -> str:
    """Render the outcomes; findings that fail the gate are failures, the others are passed cases with their text."""
    root = ET.Element("testsuites", name="gradscope")
    suites = [_suite(root, outcome) for outcome in outcomes]
    for total in ("tests", "failures", "errors", "skipped"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in suites)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(root: ET.Element, outcome: Outcome) -> ET.Element:
    findings = outcome.diagnosis.findings
    name = visible(outcome.name)
    suite = ET.SubElement(
        root, "testsuite", name=name, tests=str(max(1, len(findings))), failures=str(len(outcome.failing)),
        errors="0", skipped="0", time="0",
    )  # fmt: skip
    failing = {id(finding) for finding in outcome.failing}
    for finding in findings:
        _case(suite, name, finding, failed=id(finding) in failing)
    if not findings:
        ET.SubElement(suite, "testcase", classname=name, name="gradient flow", time="0")
    output = ET.SubElement(suite, "system-out")
    output.text = f"{outcome.diagnosis.verdict}: {visible(outcome.diagnosis.reason)} ({counted(outcome)})"
    return suite


def _case(suite: ET.Element, classname: str, finding: Finding, *, failed: bool) -> None:
    where = shown_module(finding.module, finding.call)
    attributes = {"classname": classname, "name": f"{finding.code} {where}", "time": "0"}
    if finding.file:
        attributes["file"] = visible(finding.file)
        attributes["line"] = str(finding.line or 1)
    case = ET.SubElement(suite, "testcase", attributes)
    text = f"{visible(finding.message)}\n{visible(finding.advice)}"
    if failed:
        failure = ET.SubElement(case, "failure", type=finding.code, message=visible(finding.message))
        source = f"{visible(finding.file)}:{finding.line or 1}\n" if finding.file else ""
        failure.text = source + text
    else:
        ET.SubElement(case, "system-out").text = text
