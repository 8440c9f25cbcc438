"""The sources of a library's models: what their configurations must have is often told there alone."""

from __future__ import annotations

import functools
import inspect
import sys
from pathlib import Path


@functools.cache
def source_of_module(name: str) -> str:
    """Return the source of an imported module; an empty string where there is none."""
    try:
        return inspect.getsource(sys.modules[name])
    except (OSError, TypeError):
        return ""


def source_of_models(config_class: type) -> str:
    """Return the source of the models of a configuration, imported or not; an empty string where there is none."""
    return _text_of((inspect.getsourcefile(config_class) or "").replace("configuration_", "modeling_"))


@functools.cache
def _text_of(file: str) -> str:
    return Path(file).read_text(encoding="utf-8") if Path(file).is_file() else ""
