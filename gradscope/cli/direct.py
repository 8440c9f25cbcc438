"""Commands that are given one plain word: there is nothing to parse, and the parser is half of their time.

typer loads pydantic (0.06 s) as soon as a command has an argument; what it would hand over is known without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path


def direct(arguments: Sequence[str]) -> Callable[[], int] | None:
    """Return what a command line comes to, None where it has to be parsed.

    Args:
        arguments: The command line without the program's name.
    """
    if len(arguments) != 2 or not arguments[1] or arguments[1].startswith("-"):  # noqa: PLR2004 - command and word
        return None
    command, word = arguments
    if command == "explain":
        from gradscope.cli.explained import print_rule

        return lambda: print_rule(word)
    if command == "report":
        from gradscope.cli.reported import print_run

        return lambda: print_run(Path(word))
    return None
