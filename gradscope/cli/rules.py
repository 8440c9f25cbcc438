"""`gradscope rules`: all rules."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gradscope.cli.debugging import remember_debug
from gradscope.cli.emit import emit
from gradscope.cli.explained import rule_object
from gradscope.errors import EXIT_CLEAN
from gradscope.report.console import rendered
from gradscope.report.rulebook import ALL_RULES
from gradscope.report.terminal.layout import SEVERITY_STYLES, draw_note, draw_title
from gradscope.rules.kind import Rule

HELP = """
List all rules by family.
"""
EXAMPLES = (
    "gradscope rules",
    "gradscope rules --json",
)

FAMILIES = {
    "GS1": "Flow: does gradient arrive?",
    "GS2": "Residual connections",
    "GS3": "Signal",
    "GS4": "Precision",
    "GS5": "Updates",
    "GS6": "Set-up",
    "GS7": "Regression since a saved run",
}


def rules(
    as_json: Annotated[bool, typer.Option("--json", help="Print them as one JSON array.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", callback=remember_debug, help="Show the traceback of an error.")
    ] = False,
) -> int:
    """Print code, severity and summary of every rule."""
    if as_json:
        emit(json.dumps([rule_object(rule) for rule in ALL_RULES], indent=2, ensure_ascii=False) + "\n")
    else:
        emit(rendered(_draw, sys.stdout))
    return EXIT_CLEAN


def _draw(console: Console) -> None:
    families: dict[str, list[Rule]] = {}
    for rule in ALL_RULES:
        families.setdefault(rule.code[:3], []).append(rule)
    for prefix, members in families.items():
        draw_title(console, prefix, FAMILIES.get(prefix, ""))
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, width=8)
        grid.add_column(no_wrap=True, width=7)
        grid.add_column(overflow="fold")
        for rule in members:
            grid.add_row(
                Text(f"  {rule.code}"), Text(rule.severity, style=SEVERITY_STYLES[rule.severity]), Text(rule.summary)
            )
        console.print(grid)
    console.print()
    draw_note(console, "gradscope explain CODE says what a rule measures, when it is wrong and what to do.")
