"""Text that came from the user, made inert in Markdown: it cannot begin a link, a mention, formatting or a cell."""

from __future__ import annotations

import re

from gradscope.report.names import fit

_MAX_CELLS = 400
"""Terminal cells of one text; what is longer is shortened in its middle."""
_INERT = str.maketrans(
    {
        **{character: f"\\{character}" for character in "\\`*_{}[]#~$"},
        **{"<": "&lt;", ">": "&gt;", "&": "&amp;", "|": "&#124;"},
        "@": "@&#8203;",  # a zero-width space: "@name" in a module must not notify the person of that name
    }
)


def inert(text: str) -> str:
    r"""Make running text mean itself in GitHub's and GitLab's Markdown, in and out of a table.

    Examples:
        >>> print(inert("*layers* of @someone"))
        \*layers\* of @&#8203;someone
    """
    return fit(text, _MAX_CELLS).translate(_INERT)


def as_code(text: str) -> str:
    """Set a name as code, where nothing is a link, a mention or an emoji; the fence outgrows backticks inside.

    Examples:
        >>> as_code("a`b")
        '``a`b``'
    """
    shown = fit(text, _MAX_CELLS).replace("|", "\\|")
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}" if shown.strip() else ""
