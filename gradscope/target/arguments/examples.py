"""Plausible values for arguments, for a command line to edit; never used to build what is inspected."""

from __future__ import annotations

import typing
from typing import Any

EXAMPLE_VALUES = {
    "vocab": 1000,
    "classes": 10,
    "channels": 3,
    "layers": 4,
    "depth": 4,
    "blocks": 4,
    "heads": 4,
    "head": 4,
    "patch": 8,
    "frames": 4,
    "modes": 4,
    "dim": 64,
    "width": 64,
    "hidden": 64,
    "size": 64,
    "features": 64,
    "embd": 64,
    "embed": 64,
    "d_model": 64,
    "d_ff": 256,
    "ff": 256,
    "len": 128,
    "length": 128,
    "seq": 128,
    "block_size": 128,
    "context": 128,
    "kernel": 3,
    "dropout": 0.0,
    "rate": 0.0,
    "prob": 0.0,
    "smoothing": 0.0,
    "eps": 1e-6,
    "decay": 0.0,
    "lr": 0.001,
    "bias": True,
    "use_": True,
    "name": "'name'",
}
"""By what a name contains."""


def example_value(name: str, annotation: Any = None) -> Any:
    """Return a plausible value for an argument or a setting."""
    if choices := typing.get_args(annotation) if typing.get_origin(annotation) is typing.Literal else ():
        return choices[0]
    if annotation in (bool, "bool"):
        return True
    if annotation in (float, "float"):
        return 0.1
    if annotation in (str, "str"):
        return "name"
    words = name.lower()
    return next((value for part, value in EXAMPLE_VALUES.items() if part in words), 64)
