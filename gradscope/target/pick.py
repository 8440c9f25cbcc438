"""Choose what to inspect among the names of a file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from torch import nn
from torch.nn.modules import loss as torch_losses

from gradscope.errors import TargetError
from gradscope.target.arguments.plan import can_build, is_told, needed, parameters_of
from gradscope.target.nearest import MOST_NAMES, did_you_mean, shortened

FACTORY_NAMES = ("model", "build_model", "get_model", "create_model", "make_model")
CRITERION_TYPES = tuple(
    value
    for value in vars(torch_losses).values()
    if isinstance(value, type) and issubclass(value, nn.Module) and value.__module__ == torch_losses.__name__
)


@dataclass(frozen=True)
class Candidate:
    """A name that could be inspected.

    Attributes:
        name: The attribute in the file.
        kind: factory, model or class.
        needs: The arguments it cannot be built without.
    """

    name: str
    kind: str
    needs: tuple[str, ...] = ()


def candidates(module: ModuleType, arguments: Mapping[str, Any]) -> list[Candidate]:
    """List everything in a module that could be inspected, the most obvious first."""
    names = vars(module)
    found = [
        Candidate(n, "factory", _needs(names[n], arguments, names)) for n in FACTORY_NAMES if _is_factory(names.get(n))
    ]
    found += [Candidate(n, "model") for n, v in names.items() if isinstance(v, nn.Module) and not is_criterion(v)]
    found += [
        Candidate(n, "class", _needs(v, arguments, names))
        for n, v in names.items()
        if _is_own_class(v, module) and not n.startswith("_")
    ]
    return found


def choose(module: ModuleType, arguments: Mapping[str, Any], target: str, where: str) -> str:
    """Return the name of the one obvious thing to inspect.

    Raises:
        TargetError: If there is nothing, or too much, to choose from.
    """
    found = candidates(module, arguments)
    by_name = {c.name: c for c in found}
    if "model" in by_name and by_name["model"].kind != "class":
        return "model"
    outer = set(outermost([c.name for c in found if c.kind == "class"], vars(module)))
    found = [c for c in found if c.kind != "class" or c.name in outer]
    for kind in ("factory", "model", "class"):
        ready = [c.name for c in found if c.kind == kind and not c.needs]
        ready = _distinct(ready, vars(module)) if kind == "model" else ready
        if len(ready) == 1:
            return ready[0]
        if ready:
            raise _too_many(ready, target, where)
    told = [c.name for c in found if c.kind == "class" and is_told(vars(module)[c.name], arguments, vars(module))]
    if len(told) == 1:
        return told[0]
    if not found:
        raise _nothing(module, where, target)
    chosen = [c.name for c in found if c.kind == "factory"] or [c.name for c in found]
    if len(chosen) == 1:
        return chosen[0]  # building it will say which arguments it needs
    raise _too_many(chosen, target, where)


def attribute(module: ModuleType, attr: str, where: str) -> Any:
    """Return a (dotted) attribute of a module.

    Raises:
        TargetError: If there is none, with the nearest names there are.
    """
    value: Any = module
    for part in attr.split("."):
        if not hasattr(value, part):
            known = [c.name for c in candidates(module, {})] or [n for n in vars(module) if not n.startswith("_")]
            raise TargetError(f"{where} has no {attr!r}.", rule=did_you_mean(attr, known))
        value = getattr(value, part)
    return value


def is_criterion(value: Any) -> bool:
    """Whether a module is a loss rather than a model."""
    return isinstance(value, CRITERION_TYPES) or "loss" in type(value).__name__.lower()


def outermost(names: list[str], namespace: Mapping[str, Any]) -> list[str]:
    """Keep the classes that no other class of the file uses or extends: a Block inside a Net is not the model."""
    used: set[str] = set()
    for other in namespace.values():
        if isinstance(other, type) and issubclass(other, nn.Module) and other.__module__ == namespace.get("__name__"):
            used |= _names_used(other) - {other.__name__}
            used |= {base.__name__ for base in other.__mro__[1:]}
    kept = [n for n in names if namespace[n].__name__ not in used]
    return kept or names


def _names_used(cls: type) -> set[str]:
    used: set[str] = set()
    for member in vars(cls).values():
        code = getattr(getattr(member, "__func__", member), "__code__", None)
        stack = [code] if code is not None else []
        while stack:
            current = stack.pop()
            used |= set(current.co_names)
            stack += [c for c in current.co_consts if inspect.iscode(c)]
    return used


def _distinct(names: list[str], namespace: Mapping[str, Any]) -> list[str]:
    """Drop second names of the same object, and models that are part of another one."""
    inner = {id(m) for n in names for m in namespace[n].modules() if m is not namespace[n]}
    kept: dict[int, str] = {}
    for name in names:
        if id(namespace[name]) not in inner:
            kept.setdefault(id(namespace[name]), name)
    return list(kept.values())


def _is_factory(value: Any) -> bool:
    return callable(value) and not isinstance(value, type | nn.Module)


def _is_own_class(value: Any, module: ModuleType) -> bool:
    return (
        isinstance(value, type)
        and issubclass(value, nn.Module)
        and value.__module__ == module.__name__
        and not inspect.isabstract(value)
        and "loss" not in value.__name__.lower()
    )


def _needs(function: Callable[..., Any], arguments: Mapping[str, Any], namespace: Mapping[str, Any]) -> tuple[str, ...]:
    if can_build(function, arguments, namespace):
        return ()
    parameters = parameters_of(function)
    return ("…",) if parameters is None else tuple(p.name for p in needed(parameters, arguments))


def _too_many(names: list[str], target: str, where: str) -> TargetError:
    lines = [f"gradscope inspect {target}:{name}" for name in names[:MOST_NAMES]]
    return TargetError(
        f"{where} offers several models: {shortened(names)}.", rule="Name the one you mean.", hint="\n".join(lines)
    )


def _nothing(module: ModuleType, where: str, target: str) -> TargetError:
    functions = [
        n
        for n, v in vars(module).items()
        if inspect.isfunction(v) and v.__module__ == module.__name__ and not n.startswith("_")
    ]
    hint = f"gradscope inspect {target}:{functions[0]}" if functions else ""
    return TargetError(
        f"{where} holds no model.",
        rule="It needs a function model() that returns an nn.Module, an nn.Module class, or a module-level model.",
        hint=hint,
    )
