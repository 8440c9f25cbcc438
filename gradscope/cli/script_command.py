"""Parsing of `gradscope run [options] script.py [its arguments]`: what follows the script is the script's alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand


class ScriptCommand(TyperCommand):
    """A command whose own options end where the script (or `-m module`) begins."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the separator in front of the script, as a careful user would."""
        start = script_start(args, _names_with_value(self.params))
        return super().parse_args(ctx, [*args[:start], "--", *args[start:]] if start < len(args) else args)


def script_start(arguments: list[str], with_value: frozenset[str]) -> int:
    """Return the index of the script or of `-m`: the first word that is neither an option nor an option's value.

    Examples:
        >>> script_start(["--steps", "3", "--continue", "train.py", "--lr", "1"], frozenset({"--steps"}))
        3
        >>> script_start(["-m", "pkg.train"], frozenset())
        0
    """
    place = 0
    while place < len(arguments):
        word = arguments[place]
        if word == "-m" or not word.startswith("-") or word == "-":
            return place
        if word == "--":
            del arguments[place]
            return place
        place += 2 if word in with_value else 1
    return place


def _names_with_value(parameters: Iterable[Any]) -> frozenset[str]:
    return frozenset(
        name
        for parameter in parameters
        if parameter.param_type_name == "option" and not parameter.is_flag
        for name in parameter.opts
    )
