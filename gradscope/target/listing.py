"""What could be inspected in a file: --list-targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradscope.target.arguments.plan import needed, parameters_of
from gradscope.target.importing import import_dotted, import_file
from gradscope.target.pick import candidates
from gradscope.target.sources.hub import HUB_FILE, entries_of
from gradscope.target.spec import parse


@dataclass(frozen=True)
class Listed:
    """One thing that could be inspected.

    Attributes:
        target: Ready to paste.
        kind: factory, model, class or (of a hubconf.py) entry.
        needs: Arguments it cannot be built without.
    """

    target: str
    kind: str
    needs: tuple[str, ...] = ()


def list_targets(file: str) -> list[Listed]:
    """List everything in a Python file (or dotted module) that could be inspected, the most obvious first.

    Raises:
        TargetError: If it cannot be imported.
    """
    spec = parse(file if file.endswith(".py") or "/" in file or ":" in file else f"{file}:")
    module = import_file(Path(spec.place)) if spec.kind == "file" else import_dotted(spec.place.rstrip(":"))
    if Path(spec.place).name == HUB_FILE:
        start = f"hub:{Path(spec.place).parent}"
        return [Listed(f"{start}:{name}", "entry", _needs(entry)) for name, entry in entries_of(module).items()]
    return [Listed(f"{spec.place}:{c.name}", c.kind, c.needs) for c in candidates(module, {})]


def _needs(entry: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(p.name for p in needed(parameters_of(entry) or {}, {}))
