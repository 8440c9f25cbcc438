"""Settings from `[tool.gradscope]` of pyproject.toml or from gradscope.toml: strict, with the nearest key named."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from gradscope.errors import ConfigError

CONFIG_NAME = "gradscope.toml"
"""A file of its own for those who have no pyproject.toml; its top level is what `[tool.gradscope]` is there."""


@dataclass(frozen=True)
class _Kind:
    """What a setting's value must be: in words, and as a test."""

    words: str
    fits: Callable[[Any], bool]


_TEXT = _Kind("a text", lambda value: isinstance(value, str))
_INTEGER = _Kind("a whole number", lambda value: type(value) is int)
_NUMBER = _Kind("a number", lambda value: type(value) in (int, float))
_FLAG = _Kind("true or false", lambda value: isinstance(value, bool))
_INTEGERS = _Kind(
    "a list of whole numbers", lambda value: isinstance(value, list) and all(type(item) is int for item in value)
)
_SEED = _Kind('a whole number or "none"', lambda value: type(value) is int or value == "none")
_CODES = _Kind(
    'a list of codes or prefixes, such as ["GS1", "GS203"]',
    lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
)

MEASURING_KEYS: dict[str, _Kind] = {
    "inputs": _TEXT,
    "loss": _TEXT,
    "input": _TEXT,
    "weights": _TEXT,
    "seed": _SEED,
    "steps": _INTEGER,
    "watch": _INTEGERS,
    "optimizer": _TEXT,
    "lr": _NUMBER,
    "device": _TEXT,
    "dtype": _TEXT,
    "mode": _TEXT,
    "level": _TEXT,
    "jacobian": _FLAG,
}
"""How a target is measured; allowed at the top and under a target."""

GATE_KEYS: dict[str, _Kind] = {
    "select": _CODES,
    "extend-select": _CODES,
    "ignore": _CODES,
    "fail-on": _TEXT,
    "baseline": _TEXT,
    "against": _TEXT,
    "output-format": _TEXT,
    "seeds": _INTEGER,
}
"""What the gate lets through; allowed at the top only."""

TABLE_KEYS = ("per-module-ignores", "thresholds", "targets")
PATH_KEYS = frozenset({"target", "inputs", "loss", "weights", "baseline", "against"})
"""Settings whose value may name a file, which is then meant relative to the configuration file."""

_ALLOWED: dict[str, tuple[str, ...]] = {
    "fail-on": ("error", "warning", "never"),
    "mode": ("keep", "train", "eval"),
    "level": ("params", "default", "deep"),
    "dtype": ("float32", "bfloat16", "float16", "float64"),
    "optimizer": ("adam", "adamw", "sgd", "none", "subject"),
    "output-format": ("full", "concise", "json", "github", "sarif", "junit", "markdown", "gitlab"),
}


@dataclass(frozen=True)
class TargetSettings:
    """A target declared by name: the target string, its factory arguments, and its own measuring settings."""

    target: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Config:
    """The settings of one project.

    Attributes:
        path: The file they come from; None where there is none.
        settings: Measuring and gate settings at the top level.
        per_module_ignores: Codes (or prefixes) to ignore by module glob.
        thresholds: Overridden thresholds by "CODE.name".
        targets: Declared targets by name.
    """

    path: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    per_module_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)
    targets: Mapping[str, TargetSettings] = field(default_factory=dict)


def find_config(start: Path) -> Path | None:
    """Return the nearest configuration file in `start` or a folder above it.

    gradscope.toml wins over a pyproject.toml beside it; a pyproject.toml without `[tool.gradscope]` is passed over.
    """
    for folder in (start, *start.parents):
        if (folder / CONFIG_NAME).is_file():
            return folder / CONFIG_NAME
        project = folder / "pyproject.toml"
        if project.is_file() and "gradscope" in _read_toml(project).get("tool", {}):
            return project
    return None


def load_config(path: Path | None) -> Config:
    """Read and check a configuration file.

    Raises:
        ConfigError: It cannot be read, is not TOML, has an unknown key or a value of the wrong kind.
    """
    if path is None:
        return Config()
    content = _read_toml(path)
    if path.name != CONFIG_NAME and ("tool" in content or path.name == "pyproject.toml"):
        content = content.get("tool", {}).get("gradscope", {})
    reader = _Reader(path)
    reader.check_keys(content, [*MEASURING_KEYS, *GATE_KEYS, *TABLE_KEYS], "")
    plain = {key: value for key, value in content.items() if key not in TABLE_KEYS}
    return Config(
        path=path,
        settings=reader.settings(plain, MEASURING_KEYS | GATE_KEYS, ""),
        per_module_ignores=reader.ignores(content.get("per-module-ignores", {})),
        thresholds=reader.thresholds(content.get("thresholds", {})),
        targets=reader.targets(content.get("targets", {})),
    )


def nearest(word: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the closest known word, "" where none is close."""
    close = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"Did you mean '{close[0]}'?" if close else ""


def check_choice(name: str, value: str, where: str = "") -> str:
    """Return the value if it is one of the words allowed for this setting.

    Raises:
        ConfigError: It is not.
    """
    allowed = _ALLOWED.get(name)
    if allowed and value not in allowed:
        rule = f"It must be one of {', '.join(allowed)}. {nearest(value, allowed)}".strip()
        raise ConfigError(f"{where}{name} = '{value}' is not known.", rule=rule)
    return value


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration {path}: {error}.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None


@dataclass(frozen=True)
class _Reader:
    """Checks the parts of one file; `path` goes into the messages and relative paths start from its folder."""

    path: Path

    def check_keys(self, table: Any, known: Iterable[str], where: str) -> None:
        if not isinstance(table, dict):
            raise ConfigError(f"{self.path}: {where or 'tool.gradscope'} must be a table.")
        known = list(known)
        for key in table:
            if key not in known:
                place = f" in [{where}]" if where else ""
                rule = nearest(key, known) or f"Known keys: {', '.join(known)}."
                raise ConfigError(f"{self.path}: unknown key '{key}'{place}.", rule=rule)

    def settings(self, table: Mapping[str, Any], kinds: Mapping[str, _Kind], where: str) -> dict[str, Any]:
        return {key: self._value(key, value, kinds[key], where) for key, value in table.items()}

    def _value(self, key: str, value: Any, kind: _Kind, where: str) -> Any:
        if kind is _CODES:
            return self.codes(value, f"{where}{key}")
        place = f"{self.path}: {where}"
        if not kind.fits(value):
            raise ConfigError(f"{place}{key} = {value!r} must be {kind.words}.")
        if not isinstance(value, str):
            return value
        check_choice(key, value, place)
        return self._placed(value) if key in PATH_KEYS else value

    def codes(self, value: Any, name: str) -> tuple[str, ...]:
        value = value.split(",") if isinstance(value, str) else value
        if not _CODES.fits(value):
            raise ConfigError(f"{self.path}: {name} must be {_CODES.words}.")
        return tuple(item.strip().upper() for item in value if item.strip())

    def ignores(self, table: Any) -> dict[str, tuple[str, ...]]:
        if not isinstance(table, dict):
            raise ConfigError(f'{self.path}: per-module-ignores must be a table, such as "encoder.*" = ["GS303"].')
        return {glob: self.codes(codes, f'per-module-ignores."{glob}"') for glob, codes in table.items()}

    def thresholds(self, table: Any) -> dict[str, float]:
        if not isinstance(table, dict):
            raise ConfigError(f'{self.path}: thresholds must be a table, such as "GS101.decades" = 3.5.')
        found: dict[str, float] = {}
        for key, value in table.items():
            items = {f"{key}.{name}": item for name, item in value.items()} if isinstance(value, dict) else {key: value}
            for name, item in items.items():
                if isinstance(item, bool) or not isinstance(item, int | float):
                    raise ConfigError(f"{self.path}: thresholds.{name} = {item!r} must be a number.")
                found[name] = float(item)
        return found

    def targets(self, table: Any) -> dict[str, TargetSettings]:
        if not isinstance(table, dict):
            raise ConfigError(f"{self.path}: targets must be tables, such as [tool.gradscope.targets.small].")
        return {name: self._target(name, entry) for name, entry in table.items()}

    def _target(self, name: str, entry: Any) -> TargetSettings:
        where = f"targets.{name}"
        self.check_keys(entry, ["target", "arguments", *MEASURING_KEYS], where)
        if not isinstance(entry.get("target"), str):
            raise ConfigError(f'{self.path}: [{where}] needs target = "path/model.py:attr" or another target.')
        arguments = entry.get("arguments", {})
        if not isinstance(arguments, dict):
            raise ConfigError(f"{self.path}: {where}.arguments must be a table, such as {{ layers = 12 }}.")
        own = {key: value for key, value in entry.items() if key in MEASURING_KEYS}
        return TargetSettings(self._placed(entry["target"]), arguments, self.settings(own, MEASURING_KEYS, f"{where}."))

    def _placed(self, text: str) -> str:
        """Turn a path that exists beside the configuration file into one that works from the current folder."""
        path, colon, attribute = text.partition(":")
        beside = self.path.parent / path
        if not path or Path(path).is_absolute() or not beside.exists():
            return text
        here = Path.cwd()
        try:
            shown = beside.resolve().relative_to(here.resolve())
        except ValueError:
            shown = beside
        return f"{shown.as_posix()}{colon}{attribute}"
