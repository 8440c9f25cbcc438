"""The command line's one registry of commands."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Annotated

import typer
from rich.markup import escape

from gradscope.cli import check, compare, doctor, experiment, explain, inspect, report, rules, run, variants
from gradscope.cli.emit import emit
from gradscope.cli.script_command import ScriptCommand
from gradscope.version import __version__

COMMANDS: tuple[tuple[str, ModuleType, Callable[..., int], str], ...] = (
    ("inspect", inspect, inspect.inspect, "Look at a model"),
    ("check", check, check.check, "Look at a model"),
    ("run", run, run.run, "Look at a model"),
    ("compare", compare, compare.compare, "Look at a model"),
    ("report", report, report.report, "Look at a model"),
    ("experiment", experiment, experiment.experiment, "The laboratory"),
    ("explain", explain, explain.explain, "Look something up"),
    ("rules", rules, rules.rules, "Look something up"),
    ("variants", variants, variants.variants, "Look something up"),
    ("doctor", doctor, doctor.doctor, "Look something up"),
)
"""Name, module (for its HELP and EXAMPLES), function, panel of the help page."""

HELP = """
Gradient flow of any PyTorch model: whether gradients vanish or explode, where, why, and which change fixes it.

Start with [cyan]gradscope inspect model.py[/] or, without a model at hand, [cyan]gradscope inspect builtin:post-ln[/].
"""


def _unwrapped(text: str) -> str:
    """Put each paragraph on one line, so that it is wrapped to the reader's terminal and not to this file."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


app = typer.Typer(
    name="gradscope",
    help=_unwrapped(HELP),
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        emit(f"gradscope {__version__}\n")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Exist, so that options before the command are understood."""


for _name, _module, _function, _panel in COMMANDS:
    app.command(
        _name,
        cls=ScriptCommand if _name == "run" else None,
        help=_unwrapped(_module.HELP),
        short_help=_unwrapped(_module.HELP).split("\n\n")[0],
        epilog="\n\n".join(["Examples:", *(f"  {escape(example)}" for example in _module.EXAMPLES)]),
        rich_help_panel=_panel,
    )(_function)
