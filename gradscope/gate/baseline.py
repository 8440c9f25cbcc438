"""Known findings, by target, code and module: they no longer fail the gate, and stale ones are reported."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradscope.errors import ConfigError
from gradscope.record import write_atomically
from gradscope.rules.finding import Finding

_FORMAT = "gradscope-baseline"
_SCHEMA = 1


@dataclass(frozen=True, order=True)
class Known:
    """One accepted finding. The call, the numbers and the line are left out: they move with unrelated edits."""

    target: str
    code: str
    module: str


def known(target: str, finding: Finding) -> Known:
    """Return the key of a finding."""
    return Known(target, finding.code, finding.module)


def write_baseline(path: Path, entries: Iterable[Known]) -> int:
    """Write the accepted findings, sorted so that a diff shows what changed; return how many there are."""
    unique = sorted(set(entries))
    content = {"format": _FORMAT, "schema": _SCHEMA, "findings": [vars(entry) for entry in unique]}
    write_atomically(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
    return len(unique)


def _how_to_write(path: Path) -> str:
    return f"gradscope check TARGET --write-baseline {path}"


def read_baseline(path: Path) -> frozenset[Known]:
    """Read the accepted findings.

    Raises:
        ConfigError: The file is missing, damaged, something else, or of a newer version.
    """
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"no such baseline: {path}.", hint=_how_to_write(path)) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"the baseline {path} cannot be read ({type(error).__name__}).") from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ConfigError(f"{path} is not a gradscope baseline.", hint=_how_to_write(path))
    if content.get("schema") != _SCHEMA:
        raise ConfigError(f"the baseline {path} has schema {content.get('schema')!r}; this gradscope reads {_SCHEMA}.")
    try:
        return frozenset(_entry(row) for row in content["findings"])
    except (KeyError, TypeError):
        raise ConfigError(f"the baseline {path} is damaged: a finding lacks target, code or module.") from None


def stale(baseline: Iterable[Known], found: Iterable[Known], targets: Sequence[str]) -> tuple[Known, ...]:
    """Return the entries of the targets checked that no finding matches any more."""
    present, checked = set(found), set(targets)
    return tuple(sorted(entry for entry in baseline if entry.target in checked and entry not in present))


def _entry(row: Any) -> Known:
    target, code, module = row["target"], row["code"], row["module"]
    if not all(isinstance(value, str) for value in (target, code, module)):
        raise TypeError("not text")
    return Known(target, code, module)
