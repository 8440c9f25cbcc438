"""A rule's documentation on the terminal."""

from __future__ import annotations

import json
import pkgutil
import sys
from importlib import import_module

from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from gradscope import rules
from gradscope.cli.emit import emit
from gradscope.errors import EXIT_CLEAN, ConfigError
from gradscope.report.console import rendered
from gradscope.report.names import visible
from gradscope.report.terminal.layout import SEVERITY_STYLES, draw_note
from gradscope.rules.kind import Rule


def print_rule(code: str, *, as_json: bool = False) -> int:
    """Print the documentation of a rule and return the exit code."""
    known = find_rule(code)
    if as_json:
        emit(json.dumps(rule_object(known), indent=2, ensure_ascii=False) + "\n")
    else:
        emit(rendered(lambda console: _draw(known, console), sys.stdout))
    return EXIT_CLEAN


def find_rule(code: str) -> Rule:
    """Return a rule by code or name, in any case.

    Raises:
        ConfigError: There is none; the nearest is named.
    """
    wanted = code.strip().lower()
    found = _rule_in_its_file(wanted)
    if found is not None:
        return found
    from gradscope.gate.selection import split_codes
    from gradscope.report.rulebook import ALL_RULES
    from gradscope.rules.registry import rule as registered

    for known in ALL_RULES:
        if wanted in (known.code.lower(), known.name):
            return known
    if len(split_codes([code])) != 1:
        raise ConfigError(f"'{code}' is not one code.", rule="One rule at a time.", hint="gradscope rules")
    return registered(code)


def _rule_in_its_file(code: str) -> Rule | None:
    """Import one rule by the name of its file, which begins with its code, and not all of them."""
    for module in pkgutil.iter_modules(rules.__path__):
        if module.name.partition("_")[0] == code:
            found: Rule | None = getattr(import_module(f"{rules.__name__}.{module.name}"), "RULE", None)
            return found
    return None


def rule_object(rule: Rule) -> dict[str, object]:
    """Return a rule's documentation as a JSON-ready object."""
    return {
        "code": rule.code,
        "name": rule.name,
        "severity": rule.severity,
        "summary": rule.summary,
        "thresholds": [vars(threshold) for threshold in rule.thresholds],
        "sections": [{"heading": heading, "text": text} for heading, text in rule.doc.sections()],
    }


def _draw(rule: Rule, console: Console) -> None:
    title = Text(rule.code, style=SEVERITY_STYLES[rule.severity])
    title.append(f"  {rule.name.replace('-', ' ')}", style="bold default").append(f"  {rule.severity}", style="dim")
    console.print(title)
    console.print(Text(visible(rule.summary)))
    for heading, text in rule.doc.sections():
        console.print()
        console.print(Text(heading, style="bold"))
        console.print(Markdown(text, hyperlinks=False))
    if rule.thresholds:
        console.print()
        console.print(Text("Thresholds", style="bold"))
    for threshold in rule.thresholds:
        console.print(Text(f"{rule.code}.{threshold.name} = {threshold.value:g}", style="cyan"))
        draw_note(console, f"{threshold.unit}. {threshold.why} Source: {threshold.source}.")
