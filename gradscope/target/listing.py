"""What could be inspected in a file: --list-targets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gradscope.target.importing import import_dotted, import_file
from gradscope.target.pick import candidates
from gradscope.target.spec import parse


@dataclass(frozen=True)
class Listed:
    """One thing that could be inspected.

    Attributes:
        target: Ready to paste.
        kind: factory, model or class.
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
    return [Listed(f"{spec.place}:{c.name}", c.kind, c.needs) for c in candidates(module, {})]
