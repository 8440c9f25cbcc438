"""`gradscope explain CODE`: a rule's documentation."""

from __future__ import annotations

from typing import Annotated

import typer

from gradscope.cli.debugging import remember_debug
from gradscope.cli.explained import print_rule

HELP = """
Explain a rule: what it measures, why it matters, when it is wrong, and what to do.
"""
EXAMPLES = (
    "gradscope explain GS101",
    "gradscope explain vanishing-with-depth --json",
)


def explain(
    code: Annotated[str, typer.Argument(metavar="CODE", help="A code such as GS101, or a rule's name.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it as one JSON object.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", callback=remember_debug, help="Show the traceback of an error.")
    ] = False,
) -> int:
    """Print the documentation of one rule."""
    return print_rule(code, as_json=as_json)
