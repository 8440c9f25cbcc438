"""Call what builds the model with the user's ``-a`` arguments, and say what is missing or unknown."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from gradscope.errors import TargetError
from gradscope.target.arguments.configuration import fields_missing, known_fields
from gradscope.target.arguments.plan import Plan, needed, parameters_of, planned
from gradscope.target.nearest import did_you_mean, shortened


def build_call(
    function: Callable[..., Any], arguments: Mapping[str, Any], namespace: Mapping[str, Any], *, label: str, target: str
) -> tuple[Callable[[], Any], tuple[str, ...]]:
    """Return the call of `function` with `arguments` and what the file tells beside, and what the user should know.

    Raises:
        TargetError: If an argument is unknown or a needed one is missing.
    """
    parameters = parameters_of(function)
    if parameters is None:
        return lambda: function(**arguments), ()
    plan = planned(function, arguments, namespace)
    _refuse_unknown(plan.given, parameters, label, namespace, function)
    if missing := needed(parameters, plan.given):
        raise _arguments_missing(function, plan, missing, arguments, namespace, label, target)
    given = dict(plan.given)
    positional = [given.pop(n) for n, p in parameters.items() if p.kind is p.POSITIONAL_ONLY and n in given]
    return lambda: function(*positional, **given), plan.notes


def _refuse_unknown(
    given: Mapping[str, Any],
    parameters: Mapping[str, inspect.Parameter],
    label: str,
    namespace: Mapping[str, Any],
    function: Callable[..., Any],
) -> None:
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    known = list(parameters)
    for name in parameters:
        known += sorted(known_fields(function, name, namespace))
    for key in given:
        if key not in parameters:
            rule = did_you_mean(key, known) if known else "It takes no arguments."
            raise TargetError(f"{label} takes no argument {key!r}.", rule=rule)


def _arguments_missing(
    function: Callable[..., Any],
    plan: Plan,
    missing: list[inspect.Parameter],
    arguments: Mapping[str, Any],
    namespace: Mapping[str, Any],
    label: str,
    target: str,
) -> TargetError:
    """Say what is missing, with a line to paste that gives every setting a configuration needs."""
    names = ", ".join(p.name for p in missing)
    fields = fields_missing(function, missing, plan.given, namespace)
    line = " ".join(f"-a {shlex.quote(f'{key}={value}')}" for key, value in {**arguments, **fields}.items())
    inside = [key for key in fields if key not in {p.name for p in missing}]
    holding = f", of which {shortened(inside)} {'is' if len(inside) == 1 else 'are'} read" if inside else ""
    return TargetError(
        f"{label} needs {'an argument' if len(missing) == 1 else 'arguments'}: {names}{holding}.",
        rule="Give each with -a name=value, or add a function model() without arguments to the file.",
        hint=f"gradscope inspect {shlex.quote(target)} {line}",
    )
