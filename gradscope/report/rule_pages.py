"""The manual of all rules as one Markdown page, from the text that `gradscope explain` shows: docs/rules.md."""

from __future__ import annotations

from gradscope.report.rulebook import ALL_RULES
from gradscope.rules.kind import Rule

FAMILIES = {
    "GS1": "Flow", "GS2": "Residual", "GS3": "Signal", "GS4": "Precision", "GS5": "Updates", "GS6": "Set-up",
    "GS7": "Gate",
}  # fmt: skip
"""Headings of the families of codes, in order."""


def markdown() -> str:
    """Return the page."""
    parts = [
        "# Rules",
        "One section a rule; `gradscope explain CODE` shows the same text. Levels can be replaced: "
        "`--set GS101.decades=3`, or `[tool.gradscope.thresholds]` in pyproject.toml.",
        "\n".join(_row(rule) for rule in (None, *ALL_RULES)),
    ]
    for prefix, title in FAMILIES.items():
        members = [rule for rule in ALL_RULES if rule.code.startswith(prefix)]
        parts += [f"## {title}", *(_section(rule) for rule in members)]
    return "\n\n".join(parts) + "\n"


def _row(rule: Rule | None) -> str:
    if rule is None:
        return "| code | name | at most | what it finds |\n|---|---|---|---|"
    anchor = f"{rule.code} {rule.name}".lower().replace(" ", "-")
    return f"| [{rule.code}](#{anchor}) | {rule.name} | {rule.severity} | {rule.summary} |"


def _section(rule: Rule) -> str:
    levels = [
        f"- `{rule.code}.{level.name}` = {level.value:g} ({level.unit}). {level.why} Source: {level.source}."
        for level in rule.thresholds
    ]
    # Examples are fragments, not whole programs.
    texts = [f"**{heading}.** {text}".replace("```python", "\n```py") for heading, text in rule.doc.sections()]
    shown = ["**Levels.**", "\n".join(levels)] if levels else []
    return "\n\n".join([f"### {rule.code} {rule.name}", rule.summary, *texts, *shown])
