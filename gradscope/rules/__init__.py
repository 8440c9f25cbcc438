"""Judging: a recording in, findings and a verdict out. No torch is needed."""

from gradscope.rules.finding import Diagnosis, Finding, Severity, Value, Verdict
from gradscope.rules.registry import RULES, rule
from gradscope.rules.rule import Rule, RuleDoc, Threshold
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
