"""One built-in model in the terminal: what is wired how, what is expected of it, and what can be changed."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from gradscope.cli.experiment_page import draw_table
from gradscope.experiments.result import table
from gradscope.report.glyphs import glyphs_for
from gradscope.report.numbers import decades
from gradscope.report.terminal.layout import INDENT, draw_note, draw_title
from gradscope.variants.catalog import Variant
from gradscope.variants.expected import EXPECTED_DEPTHS, Expected


def draw_variant(variant: Variant, console: Console) -> None:
    """Print it."""
    plan = plan_of(variant)
    heading = Text(f"builtin:{variant.name}", style="bold cyan")
    console.print(heading.append(f"  {variant.family.replace('-', ' ')}", style="not bold dim"))
    for text in (variant.description, variant.paper, _aliases(variant)):
        if text:
            console.print(Padding(Text(text, overflow="fold"), (0, 0, 0, INDENT)))
    _draw_parts(variant, plan, console)
    _draw_expected(variant, console)
    _draw_arguments(variant, plan, console)
    console.print()
    draw_note(console, f"gradscope inspect builtin:{variant.name}{_example(plan)}")


def plan_of(variant: Variant) -> type[Any]:
    """Return the dataclass that describes the variant's family."""
    from gradscope.variants.families import BUILDERS

    return BUILDERS[variant.family].plan


def _aliases(variant: Variant) -> str:
    return f"also answers to {', '.join(variant.aliases)}" if variant.aliases else ""


def _draw_parts(variant: Variant, plan: type[Any], console: Console) -> None:
    """List what sets it apart from its family's plain model."""
    if not variant.parts:
        return
    draw_title(console, "Parts", "what sets it apart")
    rows = [(name, _written(value), _meaning(plan, name, value)) for name, value in variant.parts.items()]
    _draw_rows(rows, console)


def _draw_expected(variant: Variant, console: Console) -> None:
    if not variant.expected:
        return
    rows = [
        (init, *(_cell(expected, place) for place in range(len(EXPECTED_DEPTHS))))
        for init, expected in variant.expected.items()
    ]
    columns = ("init", *(f"{depth} blocks" for depth in EXPECTED_DEPTHS))
    sources = dict.fromkeys(expected.source for expected in variant.expected.values())
    note = f"Known from: {'; '.join(sources)}."
    expected = table("Expected D before training, in decades", columns, rows, note)
    draw_table(expected, console, glyphs_for(console.encoding))


def _cell(expected: Expected, place: int) -> str:
    value, ends = expected.decades[place], expected.range_at(place)
    return "not finite" if value is None or ends is None else f"{decades(value)} ±{ends[1] - value:.2f}"


def _draw_arguments(variant: Variant, plan: type[Any], console: Console) -> None:
    draw_title(console, "Arguments", "-a name=value; with the value they have here")
    meanings = documented(plan)
    choices = getattr(plan, "choices", {})
    rows = []
    for argument in dataclasses.fields(plan):
        value = variant.parts.get(argument.name, argument.default)
        words = ", ".join(choices[argument.name]) if argument.name in choices else meanings.get(argument.name, "")
        rows.append((argument.name, _written(value), words))
    _draw_rows(rows, console)


def documented(plan: type[Any]) -> dict[str, str]:
    """Return what each attribute of a plan means, from the Attributes sections of its docstrings."""
    found: dict[str, str] = {}
    for kind in reversed(plan.__mro__):
        _, _, text = (inspect.getdoc(kind) or "").partition("Attributes:\n")
        for name, meaning in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text, flags=re.MULTILINE):
            found[name] = " ".join(meaning.split())
    return found


def _meaning(plan: type[Any], name: str, value: Any) -> str:
    chosen = getattr(plan, "choices", {}).get(name, {}).get(value)
    return chosen or documented(plan).get(name, "")


def _draw_rows(rows: list[tuple[str, str, str]], console: Console) -> None:
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value, words in rows:
        grid.add_row(Text(name, style="cyan"), Text(value), Text(words, style="dim"))
    console.print(Padding(grid, (0, 0, 0, INDENT)))


def _written(value: Any) -> str:
    """Write a value as ``-a`` reads it."""
    return str(value).lower() if isinstance(value, bool) or value is None else f"{value}"


def _example(plan: type[Any]) -> str:
    return " -a layers=24" if any(argument.name == "layers" for argument in dataclasses.fields(plan)) else ""
