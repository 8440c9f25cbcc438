"""Judging: a recording in, findings and a verdict out. No torch is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradscope.rules.finding import Diagnosis, Finding, Severity, Value, Verdict
    from gradscope.rules.kind import Rule, RuleDoc, Threshold
    from gradscope.rules.registry import RULES, rule
    from gradscope.rules.verdict import diagnose

__all__ = [
    "RULES",
    "Diagnosis",
    "Finding",
    "Rule",
    "RuleDoc",
    "Severity",
    "Threshold",
    "Value",
    "Verdict",
    "diagnose",
    "rule",
]

_HOMES = {
    **dict.fromkeys(("Diagnosis", "Finding", "Severity", "Value", "Verdict"), "finding"),
    **dict.fromkeys(("RULES", "rule"), "registry"),
    **dict.fromkeys(("Rule", "RuleDoc", "Threshold"), "kind"),
    "diagnose": "verdict",
}


def __getattr__(name: str) -> Any:
    # Late: whoever wants a finding's type need not load every rule.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
