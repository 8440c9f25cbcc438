"""TARGET string to Subject. Nothing is imported until it is asked for, so that ``gradscope --help`` loads no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradscope.target.listing import list_targets
    from gradscope.target.loading import load
    from gradscope.target.modules import from_module
    from gradscope.target.subject import Batch, Origin, Subject

__all__ = ["Batch", "Origin", "Subject", "from_module", "list_targets", "load"]

_HOME = {
    "load": "loading", "list_targets": "listing", "from_module": "modules",
    "Batch": "subject", "Origin": "subject", "Subject": "subject",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import the one file that holds a public name."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
