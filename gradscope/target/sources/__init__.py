"""One file per kind of target; the table says which."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from gradscope.target.source import Source
from gradscope.target.spec import Spec

_HOME = {
    "file": "python",
    "module": "python",
    "builtin": "builtin",
    "hf": "huggingface",
    "timm": "timm_model",
    "torchvision": "torchvision_model",
    "hub": "hub",
    "exported": "exported",
}


def open_source(spec: Spec, arguments: Mapping[str, Any], seed: int | None) -> Source:
    """Open a parsed target; only the file (and the optional library) that it needs is imported."""
    opener: Callable[..., Source] = import_module(f"{__name__}.{_HOME[spec.kind]}").open_source
    return opener(spec, arguments, seed)
