"""The configuration that a constructor takes: the class it is of, and the settings it has to hold."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torch import nn

from gradscope.target.arguments.examples import example_value
from gradscope.target.arguments.settings import Settings, settings_read

CONFIG_PARAMETERS = (
    "config", "cfg", "conf", "args", "hparams", "params", "options", "opt", "opts", "hps", "hp", "model_args",
    "model_config", "model_cfg", "configs", "settings",
)  # fmt: skip
"""What parameters that take a configuration are called."""


def configuration(function: Callable[..., Any], name: str, namespace: Mapping[str, Any]) -> Callable[..., Any] | None:
    """Return what makes the configuration that parameter `name` wants, if the file makes that obvious."""
    if (cls := _class_of(function, name, namespace)) is not None and not _required(cls):
        return cls
    ready = namespace.get(name, namespace.get(name.upper())) if name in CONFIG_PARAMETERS else None
    return (lambda: ready) if ready is not None and not callable(ready) else None


def known_fields(function: Callable[..., Any], name: str, namespace: Mapping[str, Any]) -> set[str]:
    """Return the fields of the configuration that a parameter takes."""
    cls = _class_of(function, name, namespace)
    return set(inspect.signature(cls).parameters) if cls is not None else set()


def takes_settings(function: Callable[..., Any], name: str, namespace: Mapping[str, Any]) -> bool:
    """Whether a parameter takes a configuration."""
    return name in CONFIG_PARAMETERS or _class_of(function, name, namespace) is not None


def from_settings(
    function: Callable[..., Any], name: str, values: Mapping[str, Any], namespace: Mapping[str, Any]
) -> Any:
    """Return the configuration that some values make; None where they are not those it needs."""
    settings = Settings(values)
    if (cls := _class_of(function, name, namespace)) is not None:
        return _made(cls, settings)
    return settings if _read_by_name(function, name) <= set(settings) else None


def put_into(configurations: Iterable[Any], key: str, value: Any) -> bool:
    """Set a field of the first configuration that has it, and say whether one has."""
    first, _, rest = key.partition(".")
    for each in configurations:
        if isinstance(each, nn.Module | type):
            continue
        if isinstance(each, Settings) and first in each:
            each.put(key, value)
            return True
        is_table = isinstance(each, dict)
        if not (first in each if is_table else hasattr(each, first) and hasattr(each, "__dict__")):
            continue
        if rest:
            return put_into([each[first] if is_table else getattr(each, first)], rest, value)
        if is_table:
            each[first] = value
        else:
            object.__setattr__(each, first, value)
        return True
    return False


def fields_missing(
    function: Callable[..., Any],
    missing: list[inspect.Parameter],
    given: Mapping[str, Any],
    namespace: Mapping[str, Any],
) -> dict[str, Any]:
    """Return every argument and every field of a configuration that has to be given, each with a plausible value."""
    hints = _hints(function)
    plain = {p.name: example_value(p.name, hints.get(p.name)) for p in missing}
    found: dict[str, Any] = {}
    for name, value in plain.items():
        if (cls := _class_of(function, name, namespace)) is not None:
            found |= dict(_examples(cls))
        elif name in CONFIG_PARAMETERS:
            read = settings_read(lambda s, name=name: function(**{**plain, **given, name: s}))  # type: ignore[misc]  # the name is bound at once
            later = _read_by_name(function, name) - {key.partition(".")[0] for key in read}
            found |= {**read, **{key: example_value(key) for key in sorted(later)}} or {name: value}
        else:
            found[name] = value
    return found


def _class_of(function: Callable[..., Any], name: str, namespace: Mapping[str, Any]) -> type | None:
    """Return the class of the configuration that a parameter takes, as annotated or the only one in the file."""
    annotated = _hints(function).get(name)
    if isinstance(annotated, type) and _is_configuration(annotated):
        return annotated
    if name not in CONFIG_PARAMETERS:
        return None
    own = [v for v in namespace.values() if isinstance(v, type) and v.__module__ == namespace.get("__name__")]
    classes = [cls for cls in own if _is_configuration(cls)]
    held = {hint for cls in classes for hint in _hints(cls).values() if isinstance(hint, type)}
    outer = [cls for cls in classes if cls not in held]
    return outer[0] if len(outer) == 1 else None


def _is_configuration(cls: type) -> bool:
    """Whether a class is a configuration."""
    if cls.__module__ == "builtins" or issubclass(cls, nn.Module):
        return False
    return dataclasses.is_dataclass(cls) or cls.__name__.lower().endswith(("config", "args", "hparams"))


def _required(cls: type) -> list[inspect.Parameter]:
    named = (p for p in inspect.signature(cls).parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
    return [p for p in named if p.default is p.empty]


def _examples(cls: type, start: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields without a default, those of configurations inside as well."""
    hints = _hints(cls)
    for parameter in _required(cls):
        inner = hints.get(parameter.name)
        if isinstance(inner, type) and _is_configuration(inner):
            yield from _examples(inner, f"{start}{parameter.name}.")
        else:
            yield f"{start}{parameter.name}", example_value(parameter.name, inner)


def _made(cls: type, values: Mapping[str, Any]) -> Any:
    """Return a configuration with fields of the values, those inside made first; None where one is missing."""
    hints, fields = _hints(cls), dict(values)
    for parameter in inspect.signature(cls).parameters.values():
        inner, value = hints.get(parameter.name), fields.get(parameter.name)
        if isinstance(inner, type) and isinstance(value, Mapping) and _is_configuration(inner):
            fields[parameter.name] = _made(inner, value)
    known = {key: value for key, value in fields.items() if key in inspect.signature(cls).parameters}
    missing = [p.name for p in _required(cls) if known.get(p.name) is None]
    return None if missing or len(known) < len(fields) else cls(**known)


def _hints(function: Any) -> dict[str, Any]:
    """Return what a constructor or a class of fields is annotated with; nothing where that cannot be evaluated."""
    found: dict[str, Any] = {}
    for target in (function, getattr(function, "__init__", None)) if isinstance(function, type) else (function,):
        try:
            found |= typing.get_type_hints(target)
        except (NameError, TypeError, AttributeError, SyntaxError):
            continue
    return found


def _read_by_name(function: Callable[..., Any], name: str) -> set[str]:
    """Return what the source of a class reads of its configuration: ``cfg.width``, ``cfg["width"]``."""
    return set(re.findall(rf"\b{name}(?:\.|\[[\"'])(\w+)\b(?!\()", _source(function)))


def _source(function: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return ""
