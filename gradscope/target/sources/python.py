"""file.py, file.py:attr and pkg.mod:attr."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from gradscope.errors import TargetError
from gradscope.probe.seeding import seed_everything
from gradscope.target.construct import build_call
from gradscope.target.importing import folder_of, import_dotted, import_file
from gradscope.target.pick import attribute, choose
from gradscope.target.returned import built_from
from gradscope.target.sandbox import user_code
from gradscope.target.source import Built, Source
from gradscope.target.spec import Spec


def open_source(spec: Spec, arguments: Mapping[str, Any], seed: int | None) -> Source:
    """Import the file or module and find what builds the model in it."""
    seed_everything(seed)  # a module-level model is built by the import
    if spec.kind == "file":
        module, where = import_file(Path(spec.place)), Path(spec.place).name
    else:
        module, where = import_dotted(spec.place), spec.place
    return source_in(module, where, spec, arguments)


def source_in(module: ModuleType, where: str, spec: Spec, arguments: Mapping[str, Any]) -> Source:
    """Return the source for the attribute a spec names, or for the one obvious thing in the module."""
    folder = folder_of(module)
    attr = spec.attr or choose(module, arguments, spec.text, where)
    value = attribute(module, attr, where)
    label = f"{attr} in {where}"
    if isinstance(value, nn.Module):
        _refuse_arguments(arguments, label)
        return Source(label, lambda: Built(value), vars(module), where, folder, root=_root(folder), rebuilds=False)
    if not callable(value):
        raise TargetError(
            f"{label} is a {type(value).__name__}.",
            rule="A target is an nn.Module, a class of one, or a function returning one.",
        )
    if isinstance(value, type) and not issubclass(value, nn.Module):
        raise TargetError(
            f"{label} is a class, but not of an nn.Module.", rule="Name an nn.Module class or a function."
        )
    label = label if isinstance(value, type) else f"{attr}() in {where}"
    with user_code(f"Reading {label}", folder):
        call, notes = build_call(value, arguments, vars(module), label=label, target=spec.text)

    def build() -> Built:
        with user_code(f"Building {label}", folder):
            result = call()
        return built_from(result, label)

    return Source(label, build, vars(module), where, folder, root=_root(folder), notes=notes)


def _refuse_arguments(arguments: Mapping[str, Any], label: str) -> None:
    if arguments:
        key = next(iter(arguments))
        raise TargetError(
            f"{label} is built already, so -a {key}=… cannot reach it.",
            rule="Name a class or a function that builds it.",
        )


def _root(folder: Path) -> Path:
    """Return what user files are shown relative to: the working directory if the file lies below it."""
    return Path.cwd() if folder.is_relative_to(Path.cwd()) else folder
