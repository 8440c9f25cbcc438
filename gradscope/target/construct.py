"""Call what builds the model with the user's ``-a`` arguments, and say what is missing or unknown."""

from __future__ import annotations

import dataclasses
import inspect
import shlex
import typing
from collections.abc import Callable, Mapping
from typing import Any

from gradscope.errors import TargetError
from gradscope.target.nearest import did_you_mean

CONFIG_PARAMETERS = ("config", "cfg", "conf", "args", "hparams", "params", "options", "model_args", "model_config")
EXAMPLE_VALUES = {
    "vocab": 1000,
    "classes": 10,
    "channels": 3,
    "layers": 4,
    "depth": 4,
    "blocks": 4,
    "heads": 4,
    "head": 4,
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
    "lr": 0.001,
    "bias": True,
    "name": "'name'",
}
"""Shown in the ready-made command line of an error, by what the parameter's name contains; never used to build."""


def build_call(
    function: Callable[..., Any], arguments: Mapping[str, Any], namespace: Mapping[str, Any], *, label: str, target: str
) -> Callable[[], Any]:
    """Return the call of `function` with `arguments`, its configuration object filled in where it wants one.

    Raises:
        TargetError: If an argument is unknown or a needed one is missing.
    """
    parameters = parameters_of(function)
    if parameters is None:
        return lambda: function(**arguments)
    given = dict(arguments)
    for name, parameter in parameters.items():
        if name not in given and parameter.default is parameter.empty and _is_named(parameter):
            make = _configuration(function, name, namespace)
            if make is not None:
                fields = {key: given.pop(key) for key in list(given) if key not in parameters and key in _fields(make)}
                given[name] = make(**fields)
    _refuse_unknown(given, parameters, label, namespace, function)
    if missing := needed(parameters, given):
        raise _arguments_missing(missing, arguments, label, target)
    positional = [given.pop(n) for n, p in parameters.items() if p.kind is p.POSITIONAL_ONLY and n in given]
    return lambda: function(*positional, **given)


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """Return the parameters a caller gives (no self), or None where the signature cannot be read."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None


def needed(parameters: Mapping[str, inspect.Parameter], given: Mapping[str, Any]) -> list[inspect.Parameter]:
    """Return the parameters without a default that `given` leaves out."""
    return [p for n, p in parameters.items() if n not in given and p.default is p.empty and _is_named(p)]


def can_build(function: Callable[..., Any], arguments: Mapping[str, Any], namespace: Mapping[str, Any]) -> bool:
    """Whether `function` needs nothing that neither `arguments` nor a configuration class in its file gives."""
    parameters = parameters_of(function)
    if parameters is None:
        return False
    return all(_configuration(function, p.name, namespace) for p in needed(parameters, arguments))


def _is_named(parameter: inspect.Parameter) -> bool:
    return parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)


def _configuration(function: Callable[..., Any], name: str, namespace: Mapping[str, Any]) -> Callable[..., Any] | None:
    """Return what makes the configuration object that parameter `name` wants, if the file makes that obvious."""
    annotated = _annotation(function, name)
    if isinstance(annotated, type) and _is_configuration(annotated):
        return annotated
    if name not in CONFIG_PARAMETERS:
        return None
    ready = namespace.get(name, namespace.get(name.upper()))
    if ready is not None and not callable(ready):
        return lambda: ready
    classes = [
        value
        for value in namespace.values()
        if isinstance(value, type) and value.__module__ == namespace.get("__name__") and _is_configuration(value)
    ]
    return classes[0] if len(classes) == 1 else None


def _is_configuration(cls: type) -> bool:
    """Whether a class is a configuration that can be made without arguments."""
    if cls.__module__ == "builtins" or needed(parameters_of(cls) or {}, {}):
        return False
    return dataclasses.is_dataclass(cls) or cls.__name__.lower().endswith(("config", "args", "hparams"))


def _annotation(function: Callable[..., Any], name: str) -> Any:
    target = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]  # reads annotations only
    try:
        return typing.get_type_hints(target).get(name)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return None  # an annotation that cannot be evaluated says nothing


def _fields(make: Callable[..., Any]) -> set[str]:
    return set(parameters_of(make) or {})


def _refuse_unknown(
    given: Mapping[str, Any],
    parameters: Mapping[str, inspect.Parameter],
    label: str,
    namespace: Mapping[str, Any],
    function: Callable[..., Any],
) -> None:
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    known = [name for name, p in parameters.items() if _is_named(p)]
    for name in list(known):
        if make := _configuration(function, name, namespace):
            known += sorted(_fields(make))
    for key in given:
        if key not in parameters:
            rule = did_you_mean(key, known) if known else "It takes no arguments."
            raise TargetError(f"{label} takes no argument {key!r}.", rule=rule)


def _arguments_missing(
    missing: list[inspect.Parameter], arguments: Mapping[str, Any], label: str, target: str
) -> TargetError:
    names = ", ".join(p.name for p in missing)
    given = [f"-a {shlex.quote(f'{k}={v}')}" for k, v in arguments.items()]
    line = " ".join([*given, *(f"-a {p.name}={example_value(p)}" for p in missing)])
    return TargetError(
        f"{label} needs {'an argument' if len(missing) == 1 else 'arguments'}: {names}.",
        rule="Give each with -a name=value, or add a function model() without arguments to the file.",
        hint=f"gradscope inspect {shlex.quote(target)} {line}",
    )


def example_value(parameter: inspect.Parameter) -> Any:
    """Return a plausible value for a parameter, for a command line to edit."""
    if parameter.annotation in (bool, "bool"):
        return True
    if parameter.annotation in (float, "float"):
        return 0.1
    words = parameter.name.lower()
    return next((value for part, value in EXAMPLE_VALUES.items() if part in words), 64)
