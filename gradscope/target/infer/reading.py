"""Read a forward's source: which layer an input goes to first, and which keys it is asked for."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

FEW_CLASSES = 2
"""Classes that exist where forward counts some and does not say how many."""
MOST_LEVELS = 12
"""How deep containers are followed to the layer that takes an input."""


def parameters_of_forward(model: nn.Module) -> list[inspect.Parameter]:
    """Return the parameters of a module's forward, or none where it cannot be read."""
    try:
        return list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        return []


def first_layers(model: nn.Module, name: str, level: int = 0) -> Iterator[nn.Module]:
    """Yield the layers without children that take the input called `name`, in the order of the source."""
    if level > MOST_LEVELS:
        return
    if isinstance(model, nn.Sequential):
        for child in model:
            if not isinstance(child, nn.Identity | nn.Flatten | nn.Unflatten | nn.modules.dropout._DropoutNd):
                yield from _layers_or_self(child, 0, level)
                return
        return
    tree = forward_of(model)
    if tree is None:
        return
    for call in _calls(tree):
        module = _module_at(model, call.func)
        for position, argument in enumerate(call.args):
            if module is not None and _mentions(argument, name):
                yield from _layers_or_self(module, position, level)
        for keyword in call.keywords:
            if module is not None and keyword.arg and _mentions(keyword.value, name):
                yield from _layers_or_self(module, keyword.arg, level)


def keys_of(model: nn.Module, name: str) -> list[str]:
    """Return the keys that forward asks an input for, as in ``batch["image"]`` or ``batch.get("image")``."""
    tree = forward_of(model)
    found: dict[str, None] = {}
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_name(node.value, name):
            key = node.slice
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and _is_name(node.func.value, name)
            and node.args
        ):
            key = node.args[0]
        else:
            continue
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            found[key.value] = None
    return list(found)


def keywords_of(model: nn.Module) -> list[tuple[str, str]]:
    """Return the inputs that forward takes out of its ``**batch`` by their names, and how it writes each."""
    rest = next((p.name for p in parameters_of_forward(model) if p.kind is p.VAR_KEYWORD), None)
    tree = forward_of(model) if rest is not None else None
    read = (n for n in ast.walk(tree) if isinstance(n, ast.Subscript)) if tree is not None else ()
    keys = [n.slice.value for n in read if _is_name(n.value, str(rest)) and isinstance(n.slice, ast.Constant)]
    return [(key, f"{rest}[{key!r}]") for key in dict.fromkeys(keys) if isinstance(key, str)]


def attributes_of(model: nn.Module, name: str) -> list[str]:
    """Return the attributes that forward reads of an input that is no tensor, as in ``data.edge_index``."""
    tree = forward_of(model)
    nodes = list(ast.walk(tree)) if tree is not None else []
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}  # a method is no part
    found: dict[str, None] = {}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in called:
            found |= {node.attr: None} if _is_name(node.value, name) else {}
    return [attribute for attribute in found if not hasattr(torch.Tensor, attribute)]


def unpacked_into(model: nn.Module, name: str) -> list[str]:
    """Return the names that forward unpacks an input into, as in ``x, y = batch``."""
    tree = forward_of(model)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Assign) and _is_name(node.value, name) and isinstance(node.targets[0], ast.Tuple):
            return [element.id for element in node.targets[0].elts if isinstance(element, ast.Name)]
    return []


def classes_of(model: nn.Module, name: str) -> int:
    """Return how many classes an input counts that forward hands to `one_hot`; 0 where it does not."""
    tree = forward_of(model)
    for call in _calls(tree) if tree is not None else ():
        called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        if called == "one_hot" and arguments and _mentions(arguments[0], name):
            number = arguments[1] if len(arguments) > 1 else None
            value = number.value if isinstance(number, ast.Constant) else number and value_at(model, number)
            return value if type(value) is int else FEW_CLASSES
    return 0


def _layers_or_self(module: nn.Module, position: int | str, level: int) -> Iterator[nn.Module]:
    """The layer itself, or the layers inside a container that take the argument at that place."""
    if next(module.children(), None) is None or (
        type(module).__module__.startswith("torch.nn") and not isinstance(module, nn.Sequential)
    ):
        yield module
        return
    inner: Any = position
    if isinstance(position, int) and not isinstance(module, nn.Sequential):
        parameters = parameters_of_forward(module)
        inner = parameters[position].name if position < len(parameters) else ""
    yield from first_layers(module, str(inner), level + 1)


def forward_of(model: nn.Module) -> ast.AST | None:
    """Return the source of a model's forward as a tree; None where there is none."""
    return source_of_forward(type(model))


def source_of_forward(cls: type[nn.Module]) -> ast.AST | None:
    """Return the source of the forward of a class as a tree, with its decorators; None where there is none."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(cls.forward)))
    except (OSError, TypeError, SyntaxError):
        return None  # built without source: nothing to read


def _calls(tree: ast.AST) -> list[ast.Call]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return sorted(calls, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0))


def _module_at(model: nn.Module, function: ast.expr) -> nn.Module | None:
    """Resolve ``self.a.b``, ``self.a[0]`` and ``self.a["key"]`` to the module they name."""
    value = value_at(model, function)
    return value if isinstance(value, nn.Module) else None


def value_at(model: nn.Module, node: ast.expr) -> Any:
    """Return what ``self.a.b``, ``self.a[0]`` or ``self.a["key"]`` names on a model; None where it names nothing."""
    if isinstance(node, ast.Name):
        return model if node.id == "self" else None
    if isinstance(node, ast.Attribute):
        owner = value_at(model, node.value)
        return None if owner is None else getattr(owner, node.attr, None)
    if isinstance(node, ast.Subscript):
        owner = value_at(model, node.value)
        key = node.slice.value if isinstance(node.slice, ast.Constant) else 0
        if (
            isinstance(owner, nn.ModuleList | nn.Sequential)
            and isinstance(key, int)
            and -len(owner) <= key < len(owner)
        ):
            return owner[key]
        if isinstance(owner, nn.ModuleDict):
            return owner[key] if isinstance(key, str) and key in owner else next(iter(owner.values()), None)
    return None


def _mentions(node: ast.expr, name: str) -> bool:
    """Whether an argument is the input itself, or a view or simple function of it."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _rooted_in_self(node.func):
        return False  # it goes through another module first
    return any(_is_name(child, name) for child in ast.walk(node)) and not any(
        isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute) and _rooted_in_self(child.func)
        for child in ast.walk(node)
    )


def _rooted_in_self(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return _is_name(node, "self")


def _is_name(node: ast.AST, name: str) -> bool:
    """Whether a node is a variable, or an expression such as ``batch['image']``, as it is written."""
    if isinstance(node, ast.Name):
        return node.id == name
    return isinstance(node, ast.Attribute | ast.Subscript | ast.Call) and ast.unparse(node) == name
