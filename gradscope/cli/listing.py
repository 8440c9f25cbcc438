"""`--list-targets`: what could be inspected in a file."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

from gradscope.cli.emit import emit
from gradscope.errors import EXIT_CLEAN
from gradscope.report.names import visible


def list_targets_of(path: str) -> int:
    """Print one ready-to-paste target per line, with what it is and what it still needs."""
    with redirect_stdout(sys.stderr):
        from gradscope.target import list_targets

        listed = list_targets(path)
    width = max((len(visible(item.target)) for item in listed), default=0)
    lines = []
    for item in listed:
        needs = f", needs {' '.join(f'-a {visible(name)}=...' for name in item.needs)}" if item.needs else ""
        lines.append(f"{visible(item.target):<{width}}  {item.kind}{needs}\n")
    emit("".join(lines) or f"nothing in {visible(path)} can be inspected\n")
    return EXIT_CLEAN
