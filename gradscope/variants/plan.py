"""From a user's arguments to a checked plan: a frozen dataclass with sizes and named parts."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from gradscope.errors import TargetError
from gradscope.variants.nearest import nearest

Plan = TypeVar("Plan")


def make_plan(kind: type[Plan], parts: Mapping[str, Any], arguments: Mapping[str, Any], name: str) -> Plan:
    """Fill a plan with a variant's parts and a user's arguments, which win.

    Args:
        kind: The plan's dataclass; a ``choices`` attribute lists the words its text fields may be.
        parts: What the variant fixes.
        arguments: What the user wrote.
        name: The variant, for messages.

    Returns:
        The plan.

    Raises:
        TargetError: An unknown argument, or a value of the wrong type or outside the choices.
    """
    types = typing.get_type_hints(kind)
    fields = {field.name: types[field.name] for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    given = {}
    for written, value in arguments.items():
        argument = written.replace("-", "_")
        if argument not in fields:
            raise _unknown_argument(written, fields, name)
        given[argument] = _checked(argument, value, fields[argument], getattr(kind, "choices", {}), name)
    return kind(**{**parts, **given})


def _unknown_argument(written: str, fields: Mapping[str, Any], name: str) -> TargetError:
    close = nearest(written, fields)
    meant = f"did you mean '{close}'?" if close else ""
    return TargetError(
        f"builtin:{name} has no argument '{written}'; {meant}".rstrip("; "),
        rule=f"It takes {', '.join(fields)}.",
        hint=f"gradscope inspect builtin:{name} -a {close or next(iter(fields))}=...",
    )


def _checked(argument: str, value: Any, kind: Any, choices: Mapping[str, Mapping[str, str]], name: str) -> Any:
    if argument in choices:
        return _chosen(argument, value, choices[argument], name)
    allowed = typing.get_args(kind) or (kind,)
    if bool in allowed and (isinstance(value, bool) or (value is None and type(None) in allowed)):
        return value
    if float in allowed and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if int in allowed and isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    wanted = {bool: "true or false", float: "a number", int: "a whole number, not negative"}
    words = next(text for type_, text in wanted.items() if type_ in allowed)
    raise TargetError(f"builtin:{name}: {argument}={value!r} is not {words}.")


def _chosen(argument: str, value: Any, choices: Mapping[str, str], name: str) -> str:
    word = "none" if value is None or value is False else str(value).lower().replace("_", "-")
    if word in choices:
        return word
    close = nearest(word, choices)
    meant = f" Did you mean '{close}'?" if close else ""
    raise TargetError(
        f"builtin:{name}: {argument}={value!r} is not one of {', '.join(choices)}.{meant}",
        hint=f"gradscope inspect builtin:{name} -a {argument}={close or next(iter(choices))}",
    )


def require(condition: bool, what: str, rule: str) -> None:
    """Raise a TargetError unless the condition holds."""
    if not condition:
        raise TargetError(what, rule=rule)
