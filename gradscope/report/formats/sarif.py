"""`sarif`: the Static Analysis Results Interchange Format 2.1.0 (OASIS), as code-scanning services read it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from gradscope.gate.outcome import Outcome
from gradscope.report.formats.fingerprint import Occurrences
from gradscope.report.formats.location import source_path
from gradscope.report.names import shown_module, visible
from gradscope.report.rulebook import known_rule, rule_title
from gradscope.rules.finding import Finding, Severity
from gradscope.version import __version__

_LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def sarif(outcomes: Sequence[Outcome]) -> str:
    """Render one run for all outcomes; findings the baseline knows are kept as suppressed results."""
    occurrences = Occurrences()
    pairs = [(outcome, finding, False) for outcome in outcomes for finding in outcome.diagnosis.findings]
    pairs += [(outcome, finding, True) for outcome in outcomes for finding in outcome.known]
    codes = sorted({finding.code for _, finding, _ in pairs})
    results = [
        _result(outcome, finding, codes.index(finding.code), occurrences, suppressed=suppressed)
        for outcome, finding, suppressed in pairs
    ]
    driver = {
        "name": "gradscope",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(code) for code in codes],
    }
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(code: str) -> dict[str, Any]:
    rule = known_rule(code)
    if rule is None:
        return {"id": code}
    sections = rule.doc.sections()
    return {
        "id": code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.doc.measures.strip()},
        "help": {
            "text": "\n\n".join(f"{heading}\n{text}" for heading, text in sections),
            "markdown": "\n\n".join(f"**{heading}**\n\n{text}" for heading, text in sections),
        },
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(
    outcome: Outcome, finding: Finding, index: int, occurrences: Occurrences, *, suppressed: bool
) -> dict[str, Any]:
    target = outcome.recording.provenance.target
    where = shown_module(finding.module, finding.call)
    title = rule_title(finding.code)
    text = f"{where}: {visible(finding.message)} {visible(finding.advice)}".strip()
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{title}: {text}" if title else text},
        "locations": [_location(outcome, finding)],
        "partialFingerprints": {"gradscopeFinding/v1": occurrences.fingerprint(target, finding)},
    }
    if suppressed:
        result["suppressions"] = [{"kind": "external", "justification": "accepted in the baseline"}]
    return result


def _location(outcome: Outcome, finding: Finding) -> dict[str, Any]:
    physical: dict[str, Any] = {
        "artifactLocation": {"uri": quote(visible(source_path(outcome, finding))), "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": max(1, finding.line or 1)},
    }
    location: dict[str, Any] = {"physicalLocation": physical}
    if finding.module:
        name = visible(finding.module)
        location["logicalLocations"] = [
            {"name": name.rpartition(".")[2] or name, "fullyQualifiedName": name, "kind": "module"}
        ]
    return location
