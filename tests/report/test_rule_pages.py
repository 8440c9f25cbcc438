"""docs/rules.md is written from the rules themselves and is never behind them."""

from __future__ import annotations

from pathlib import Path

from gradscope.report.rule_pages import markdown
from gradscope.report.rulebook import ALL_RULES

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def test_the_page_is_what_the_rules_say() -> None:
    assert PAGE.read_text() == markdown(), "run: make docs"


def test_every_rule_has_its_section() -> None:
    page = markdown()
    assert all(f"### {rule.code} {rule.name}" in page for rule in ALL_RULES)
    assert page.count("**What to do.**") == len(ALL_RULES)
