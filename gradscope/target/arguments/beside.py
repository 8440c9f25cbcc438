"""Settings in a file that lies beside the user's: YAML, JSON or TOML."""

from __future__ import annotations

import importlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

STEMS = ("{stem}", "config", "configs/{stem}", "configs/default", "config/{stem}", "config/config", "hparams", "params")
"""What such files are called, in the order they are looked for."""


def settings_beside(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the settings in files beside one, each with the file's name."""
    for stem in dict.fromkeys(each.format(stem=file.stem) for each in STEMS):
        for suffix, read in READERS.items():
            path = file.parent / f"{stem}{suffix}"
            if path.is_file() and isinstance(content := read(path), Mapping):
                yield str(path.relative_to(file.parent)), content


def _yaml(path: Path) -> Any:
    try:
        yaml = importlib.import_module("yaml")
    except ImportError:
        return None
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, OSError, UnicodeDecodeError):
        return None


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _toml(path: Path) -> Any:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


READERS = {".yaml": _yaml, ".yml": _yaml, ".json": _json, ".toml": _toml}
"""By what a file's name ends in."""
