"""The documentation of a rule, as its finding shows it."""

from __future__ import annotations

from markupsafe import Markup


def rule_name(code: str) -> str:
    """Return a rule's short name, "" for a code that this version does not know."""
    return ""


def explanation(code: str) -> list[tuple[str, Markup]]:
    """Return a rule's documentation as (heading, text) pairs."""
    return []
