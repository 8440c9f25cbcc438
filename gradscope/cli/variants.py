"""`gradscope variants`: the built-in models."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradscope.cli.debugging import remember_debug
from gradscope.cli.emit import emit
from gradscope.errors import EXIT_CLEAN
from gradscope.report.console import rendered
from gradscope.report.terminal.layout import draw_note, draw_title
from gradscope.variants.catalog import VARIANTS, Variant

HELP = """
List the built-in models, each to be inspected as builtin:NAME.
"""
EXAMPLES = (
    "gradscope variants",
    "gradscope inspect builtin:deepnorm -a layers=48",
)


def variants(
    as_json: Annotated[bool, typer.Option("--json", help="Print them as one JSON array.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", callback=remember_debug, help="Show the traceback of an error.")
    ] = False,
) -> int:
    """Print name, wiring and source of every variant."""
    if as_json:
        emit(json.dumps([_object(variant) for variant in VARIANTS], indent=2, ensure_ascii=False) + "\n")
    else:
        emit(rendered(_draw, sys.stdout))
    return EXIT_CLEAN


def _object(variant: Variant) -> dict[str, object]:
    return {
        "name": variant.name,
        "aliases": list(variant.aliases),
        "family": variant.family,
        "description": variant.description,
        "paper": variant.paper,
    }


def _draw(console: Console) -> None:
    families: dict[str, list[Variant]] = {}
    for variant in VARIANTS:
        families.setdefault(variant.family, []).append(variant)
    width = max(len(variant.name) for variant in VARIANTS)
    for family, members in families.items():
        draw_title(console, family.replace("-", " ").capitalize())
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, width=width)
        grid.add_column(overflow="fold")
        for variant in members:
            text = Text(variant.description)
            grid.add_row(Text(variant.name, style="cyan"), text.append(f"  {variant.paper}", style="dim"))
        console.print(Padding(grid, (0, 0, 0, 2)))
    console.print()
    draw_note(console, "gradscope inspect builtin:NAME -a layers=24 -a d_model=128 -a norm=rms ...")
