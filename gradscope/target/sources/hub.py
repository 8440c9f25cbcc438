"""hub:DIR:entry, an entry point of a local hubconf.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from gradscope.errors import TargetError
from gradscope.target.arguments.plan import parameters_of
from gradscope.target.importing import import_file
from gradscope.target.nearest import shortened
from gradscope.target.source import Source
from gradscope.target.sources.python import source_in
from gradscope.target.spec import Spec

HUB_FILE = "hubconf.py"
DOWNLOADS = ("pretrained", "weights")
"""Arguments by which entry points fetch weights; they are turned off unless the user sets them."""


def open_source(spec: Spec, arguments: Mapping[str, Any], seed: int | None) -> Source:
    """Open an entry point of a directory with a hubconf.py; repositories on the net are not fetched."""
    folder = Path(spec.place)
    if not folder.is_dir():
        rule = "Nothing is fetched: clone it, and name its directory." if "/" in spec.place else ""
        raise TargetError(f"There is no directory {spec.place!r}.", rule=rule)
    if not (folder / HUB_FILE).exists():
        raise TargetError(f"{spec.place!r} has no hubconf.py.", rule="hub: takes a directory with one.")
    module = import_file(folder / HUB_FILE)
    entries = list(entries_of(module))
    if not spec.attr:
        raise TargetError(
            f"{spec.text} names no entry point.",
            rule=f"There is {shortened(entries)}." if entries else "Its hubconf.py has none.",
            hint=f"gradscope inspect hub:{spec.place}:{entries[0]}" if entries else "",
        )
    parameters = parameters_of(getattr(module, spec.attr, None) or (lambda: None)) or {}
    off = {name: None if name == "weights" else False for name in DOWNLOADS if name in parameters}
    return source_in(module, f"{folder.name}/hubconf.py", spec, {**off, **arguments})


def entries_of(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return the entry points of a hubconf.py: its functions, as torch.hub lists them."""
    return {
        name: value
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and not isinstance(value, type)
    }
