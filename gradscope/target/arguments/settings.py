"""Settings that are read as attributes or by key, and which of them a constructor reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gradscope.target.arguments.examples import example_value

NO_SETTING = re.compile(r"'(?:int|float|bool)' object (?:has no attribute|is not subscriptable)")
"""What is raised where a made-up number is taken for settings inside of settings."""
MOST_NESTED = 8
"""Settings inside of settings (count) that are found one after the other."""

LOOPED_OVER = {"name": example_value("size")}
"""A mapping of which no key is asked for."""


class Settings(dict[str, Any]):
    """A mapping whose keys are attributes as well, inside as outside."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        for key, value in (values or {}).items():
            self.put(key, value)

    def put(self, path: str, value: Any) -> None:
        """Set what stands under a key, which may lead inside: ``encoder.layers``."""
        key, _, rest = path.partition(".")
        if rest:
            self.setdefault(key, type(self)()).put(rest, value)
        else:
            self[key] = type(self)(value) if isinstance(value, Mapping) else value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the settings have no {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


class _Asked(Settings):
    """Settings that make up what they are asked for."""

    last = ""
    """The key that was made up last, of these settings or of any inside of them."""

    def __missing__(self, key: str) -> Any:
        self[key] = example_value(key)
        _Asked.last = key
        return self[key]


def settings_read(build: Callable[[Any], object]) -> dict[str, Any]:
    """Return the settings that are read while something is built of them, each with a plausible value.

    Args:
        build: Builds it of the settings; what it raises ends the reading.
    """
    nested: list[str] = []
    while True:
        asked = _Asked({key: {} for key in nested})
        _Asked.last = ""
        try:
            build(asked)
        except Exception as error:  # made-up values may fit nowhere
            if NO_SETTING.search(str(error)) and _Asked.last not in ("", *nested) and len(nested) < MOST_NESTED:
                nested.append(_Asked.last)
                continue
        return dict(_leaves(asked))


def _leaves(settings: Settings, start: str = "") -> list[tuple[str, Any]]:
    """Return the settings by their path; those that nothing was asked of, but looped over, hold one entry."""
    found: list[tuple[str, Any]] = []
    for key, value in settings.items():
        if isinstance(value, Settings) and value:
            found += _leaves(value, f"{start}{key}.")
        else:
            found.append((f"{start}{key}", LOOPED_OVER if isinstance(value, Settings) else value))
    return found
