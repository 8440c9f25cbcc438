"""The command line: a group that loads a command when it is run, so that help and look-ups start at once."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from gradscope.cli.commands import COMMANDS
from gradscope.cli.emit import emit
from gradscope.cli.script_command import ScriptCommand
from gradscope.version import __version__

HELP = """
Gradient flow of any PyTorch model: whether gradients vanish or explode, where, why, and which change fixes it.

Start with [cyan]gradscope inspect model.py[/] or, without a model at hand, [cyan]gradscope inspect builtin:post-ln[/].
"""
_SETTINGS = {"help_option_names": ["-h", "--help"]}


class LazyGroup(TyperGroup):
    """Lists the commands by their one-line summaries and loads the one that is run."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Put the real command in the place of its summary."""
        if args and any(entry.name == args[0] for entry in COMMANDS):
            self.commands[args[0]] = load_command(args[0])
        return super().resolve_command(ctx, args)


def load_command(name: str) -> Any:
    """Import a command's module and make the command."""
    from rich.markup import escape

    module = import_module(f"gradscope.cli.{name}")
    single = typer.Typer(rich_markup_mode="rich", add_completion=False, pretty_exceptions_enable=False)
    function: Callable[..., int] = getattr(module, name)
    single.command(
        name,
        cls=ScriptCommand if name == "run" else None,
        help=unwrapped(module.HELP),
        epilog="\n\n".join(["Examples:", *(f"  {escape(example)}" for example in module.EXAMPLES)]),
        context_settings=_SETTINGS,
    )(function)
    return get_command(single)


def unwrapped(text: str) -> str:
    """Put each paragraph on one line, so that it is wrapped to the reader's terminal and not to its source file."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


def _show_version(wanted: bool) -> None:
    if wanted:
        emit(f"gradscope {__version__}\n")
        raise typer.Exit


def _summary() -> None:
    """Stand for a command on the help page."""


app = typer.Typer(
    name="gradscope",
    cls=LazyGroup,
    help=unwrapped(HELP),
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
)

for _entry in COMMANDS:
    app.command(_entry.name, help=_entry.summary, rich_help_panel=_entry.panel)(_summary)


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Exist, so that options before the command are understood."""
