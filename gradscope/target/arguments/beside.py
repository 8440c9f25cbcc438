"""Settings in a file that lies beside the user's: YAML, JSON or TOML."""

from __future__ import annotations

import importlib
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

STEMS = ("{stem}", "config", "configs/{stem}", "configs/default", "config/{stem}", "config/config", "hparams", "params")
"""What such files are called, in the order they are looked for."""


def settings_beside(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the settings in files beside one, each with the file's name."""
    for stem in dict.fromkeys(each.format(stem=file.stem) for each in STEMS):
        for suffix, parse in PARSERS.items():
            path = file.parent / f"{stem}{suffix}"
            try:
                content = parse(path.read_text(encoding="utf-8")) if path.is_file() else None
            except (OSError, ValueError):  # not to be read, or of another kind
                continue
            if isinstance(content, Mapping):
                yield str(path.relative_to(file.parent)), content


def _yaml(text: str) -> Any:
    try:
        yaml = importlib.import_module("yaml")
    except ImportError:
        return None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


PARSERS: dict[str, Callable[[str], Any]] = {
    ".yaml": _yaml, ".yml": _yaml, ".json": json.loads, ".toml": tomllib.loads,
}
"""By what a file's name ends in."""
