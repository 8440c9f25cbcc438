"""What the views say about a rule, from the one registry."""

from __future__ import annotations

from gradscope.gate.regression import RULE as REGRESSION
from gradscope.rules.kind import Rule
from gradscope.rules.registry import RULES

ALL_RULES: tuple[Rule, ...] = (*RULES, REGRESSION)
"""Every code a finding can carry: the rules of one recording, and the gate's comparison of two."""

_BY_CODE = {rule.code: rule for rule in ALL_RULES}


def rule_title(code: str) -> str:
    """Return a rule's name in words, "" for a code this version does not know (a newer recording's)."""
    known = _BY_CODE.get(code)
    return known.name.replace("-", " ") if known else ""


def known_rule(code: str) -> Rule | None:
    """Return the rule of a code; None for one this version does not know."""
    return _BY_CODE.get(code)
