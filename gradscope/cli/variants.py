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
from gradscope.variants.catalog import VARIANTS, Variant, find
from gradscope.variants.expected import EXPECTED_DEPTHS

HELP = """
List the built-in models, each to be inspected as builtin:NAME.

With a name it shows one: its parts, what is expected of its gradient, and the arguments it takes.
"""
EXAMPLES = (
    "gradscope variants",
    "gradscope variants deepnorm",
    "gradscope inspect builtin:deepnorm -a layers=48",
)


def variants(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show this one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print them as one JSON array.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", callback=remember_debug, help="Show the traceback of an error.")
    ] = False,
) -> int:
    """Print name, wiring and source of every variant, or all about one."""
    shown = None if name is None else find(name.removeprefix("builtin:"))
    if as_json:
        told = [_object(variant) for variant in VARIANTS] if shown is None else _object(shown)
        emit(json.dumps(told, indent=2, ensure_ascii=False) + "\n")
    elif shown is not None:
        from gradscope.cli.variant_page import draw_variant

        emit(rendered(lambda console: draw_variant(shown, console), sys.stdout))
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
        "parts": dict(variant.parts),
        "expected_decades": {
            init: {"blocks": list(EXPECTED_DEPTHS), "values": list(expected.decades), "source": expected.source}
            for init, expected in variant.expected.items()
        },
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
    draw_note(console, "gradscope variants NAME shows one and its arguments.")
    draw_note(console, "gradscope inspect builtin:NAME -a layers=24 -a d_model=128 -a norm=rms ...")
