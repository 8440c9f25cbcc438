"""How the user's own file builds a class: the arguments of a call in it, or the defaults of its command line."""

from __future__ import annotations

import argparse
import ast
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradscope.target.arguments.evaluate import Names


@dataclass(frozen=True)
class Told:
    """Arguments, and what tells them.

    Attributes:
        arguments: By name.
        where: In words.
    """

    arguments: Mapping[str, Any]
    where: str


def told_by_call(function: Callable[..., Any], namespace: Mapping[str, Any]) -> Told | None:
    """Return the arguments of the first call of a class in its file that says them all."""
    tree = tree_of(namespace)
    for block in _blocks(tree):
        assigned = dict(_assigned(block))
        names = Names(namespace, assigned, lambda: parsed_by_default(tree, namespace))
        for call in (node for node in ast.walk(block) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Name) and namespace.get(call.func.id) is function:
                try:
                    positional = [names.value(each) for each in call.args]
                    named = {each.arg: names.value(each.value) for each in call.keywords if each.arg is not None}
                    bound = inspect.signature(function).bind(*positional, **named)
                except Exception:  # whatever the user's expressions raise: this call tells nothing
                    continue
                return Told(dict(bound.arguments), f"as line {call.lineno} of {_name_of(namespace)} builds it")
    return None


def parsed_by_default(tree: ast.Module, namespace: Mapping[str, Any]) -> argparse.Namespace | None:
    """Return what the command line of a file reads where nothing is given; None where it has no parser."""
    parser, names = argparse.ArgumentParser(add_help=False), Names(namespace, {}, lambda: None)
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            _add(parser, call, names)
    return parser.parse_args([]) if parser._actions else None


def _add(parser: argparse.ArgumentParser, call: ast.Call, names: Names) -> None:
    """Add an argument that may be left out, with whatever is known of it."""
    known: dict[str, Any] = {}
    for each in call.keywords:
        if each.arg is not None and each.arg not in ("required", "help", "choices", "metavar"):
            try:
                known[each.arg] = names.value(each.value)
            except Exception:  # the type may be a function of the user's
                continue
    try:
        flags = [names.value(flag) for flag in call.args]
        if not any(flag.startswith("-") for flag in flags):
            known["nargs"] = "?"
        parser.add_argument(*flags, **known)
    except Exception:  # a group or a subparser, told twice, or not understood
        return


@functools.cache
def _parsed_file(path: str, _changed: float) -> ast.Module:
    return ast.parse(Path(path).read_text(encoding="utf-8"))


def tree_of(namespace: Mapping[str, Any]) -> ast.Module:
    """Return the syntax tree of the file that names are from; an empty one where there is none."""
    file = namespace.get("__file__")
    try:
        return _parsed_file(file, Path(file).stat().st_mtime) if file else ast.Module([], [])
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])


def _name_of(namespace: Mapping[str, Any]) -> str:
    return Path(str(namespace.get("__file__"))).name


def _blocks(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what is run with the file, then its functions: where models are built."""
    yield from (node for node in tree.body if isinstance(node, ast.If | ast.With | ast.Try))
    yield from (node for node in tree.body if isinstance(node, ast.FunctionDef))


def _assigned(block: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that are given a value in a block, parameters with a default among them."""
    if isinstance(block, ast.FunctionDef):
        arguments, defaults = block.args, block.args.defaults
        yield from zip((a.arg for a in arguments.args[len(arguments.args) - len(defaults) :]), defaults, strict=True)
        yield from ((a.arg, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d)
    for node in ast.walk(block):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value
