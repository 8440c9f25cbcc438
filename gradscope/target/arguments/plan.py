"""Which arguments a model is built with: given, filled in from the file, or told by what lies beside it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradscope.target.arguments.beside import settings_beside
from gradscope.target.arguments.calls import Told, parsed_by_default, told_by_call, tree_of
from gradscope.target.arguments.configuration import (
    CONFIG_PARAMETERS,
    configuration,
    from_settings,
    put_into,
    takes_settings,
)


@dataclass(frozen=True)
class Plan:
    """Arguments, and what tells those that were not given.

    Attributes:
        given: By name; what is needed and not told is not among them.
        notes: What the user should know.
    """

    given: dict[str, Any]
    notes: tuple[str, ...] = ()


def planned(function: Callable[..., Any], arguments: Mapping[str, Any], namespace: Mapping[str, Any]) -> Plan:
    """Return the arguments of a function, those that `arguments` leave out from its file where that tells them."""
    parameters, given = parameters_of(function) or {}, dict(arguments)
    notes: tuple[str, ...] = ()
    extra = {key: given.pop(key) for key in arguments if key not in parameters}
    for parameter in needed(parameters, given):
        if (make := configuration(function, parameter.name, namespace)) is not None:
            fields = parameters_of(make) or {}
            given[parameter.name] = make(**{key: extra.pop(key) for key in list(extra) if key in fields})
    if missing := needed(parameters, given):
        told = _told(function, missing, namespace)
        if told is not None:
            given = {**told.arguments, **given}
            notes = (f"Built {told.where}; -a key=value changes it.",)
            extra = {key: value for key, value in extra.items() if not put_into(given.values(), key, value)}
    for parameter in needed(parameters, given):
        if extra and takes_settings(function, parameter.name, namespace):
            made = from_settings(function, parameter.name, extra, namespace)
            if made is not None:
                given[parameter.name], extra = made, {}
    return Plan({**given, **extra}, notes)


def _told(
    function: Callable[..., Any], missing: list[inspect.Parameter], namespace: Mapping[str, Any]
) -> Told | None:
    """Return the arguments that are missing, where one place tells them all."""
    if isinstance(function, type) and (told := told_by_call(function, namespace)) is not None:
        return told
    names = [parameter.name for parameter in missing]
    if (parsed := parsed_by_default(tree_of(namespace), namespace)) is not None:
        where = "with the defaults of the file's command line"
        if set(names) <= set(vars(parsed)):
            return Told({name: getattr(parsed, name) for name in names}, where)
        if len(names) == 1 and names[0] in CONFIG_PARAMETERS:
            return Told({names[0]: parsed}, where)
    for file, content in settings_beside(Path(namespace.get("__file__") or "")):
        where = f"with what {file} says"
        for section in (content, *(value for value in content.values() if isinstance(value, Mapping))):
            if set(names) <= set(section):
                return Told({name: section[name] for name in names}, where)
            if len(names) == 1 and takes_settings(function, names[0], namespace):
                made = from_settings(function, names[0], section, namespace)
                if made is not None:
                    return Told({names[0]: made}, where)
    return None


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """Return the parameters a caller gives (no self), or None where the signature cannot be read."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None


def needed(parameters: Mapping[str, inspect.Parameter], given: Mapping[str, Any]) -> list[inspect.Parameter]:
    """Return the parameters without a default that `given` leaves out."""
    named = (p for p in parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
    return [p for p in named if p.name not in given and p.default is p.empty]


def can_build(function: Callable[..., Any], arguments: Mapping[str, Any], namespace: Mapping[str, Any]) -> bool:
    """Whether `function` needs nothing that neither `arguments` nor a configuration class in its file gives."""
    parameters = parameters_of(function)
    if parameters is None:
        return False
    return all(configuration(function, p.name, namespace) for p in needed(parameters, arguments))


def is_told(function: Callable[..., Any], arguments: Mapping[str, Any], namespace: Mapping[str, Any]) -> bool:
    """Whether the file, or what lies beside it, tells all that `function` needs."""
    parameters = parameters_of(function)
    return parameters is not None and not needed(parameters, planned(function, arguments, namespace).given)
