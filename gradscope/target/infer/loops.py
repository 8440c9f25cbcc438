"""What the loops of a forward say of its inputs: along which axis the steps are, and which hold a record a sample."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch import nn

from gradscope.target.infer.reading import forward_of, value_at

STEPS_FIRST, STEPS_SECOND = 0, 1
"""Which axis of an input a forward goes along, step by step."""
PASSED_THROUGH = ("zip", "enumerate", "reversed")
"""Calls that give out what they are given."""


def step_axis(model: nn.Module, name: str) -> tuple[int, str] | None:
    """Return the axis along which a loop of forward takes an input apart, and what it calls a step.

    `for x in xs` and `xs[t]` go along the first, `xs[:, t]` and `xs.unbind(1)` along the second. None where no loop
    does, or each step is a record.
    """
    tree = forward_of(model)
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For)] if tree is not None else []
    for loop in loops:
        for part, element in _elements(loop.iter, loop.target):
            if _is(part, name):
                return (STEPS_FIRST, element) if not record_keys(model, name) else None
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "unbind":
                axis = getattr(part.args[0], "value", None) if part.args else STEPS_FIRST
                if _is(part.func.value, name) and axis in (STEPS_FIRST, STEPS_SECOND):
                    return int(axis), element
        counters = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
        for node in (n for line in loop.body for n in ast.walk(line) if isinstance(n, ast.Subscript)):
            if _is(node.value, name) and (counted := _counted_axis(node.slice, counters)) is not None:
                return counted, ""
    return None


def record_keys(model: nn.Module, name: str) -> list[tuple[str, str]]:
    """Return the keys of the records that a loop takes out of an input, and how forward writes each."""
    tree = forward_of(model)
    variables = set(_variables(tree, name)) if tree is not None else set()
    subscripts = (n for n in ast.walk(tree) if isinstance(n, ast.Subscript)) if tree is not None else ()
    found: dict[str, str] = {}
    for node in subscripts:
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if isinstance(key, str) and any(_is(node.value, variable) for variable in variables):
            found.setdefault(key, ast.unparse(node))
    return list(found.items())


def paired_layers(model: nn.Module, name: str) -> list[nn.Module]:
    """Return the layers that take the elements of an input side by side, as in `zip(self.layers, features)`."""
    tree = forward_of(model)
    for node in ast.walk(tree) if tree is not None else ():
        parts = _gone_through(node) if isinstance(node, ast.Call) else []
        if len(parts) > 1 and any(_is(part, name) for part in parts):
            owners = (value_at(model, part) for part in parts)
            layers = next((owner for owner in owners if isinstance(owner, nn.ModuleList)), None)
            return list(layers) if layers is not None else []
    return []


def _variables(tree: ast.AST, name: str) -> Iterator[str]:
    """Yield the variables that stand for one element of an input in a loop or a comprehension."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension):
            yield from (element for part, element in _elements(node.iter, node.target) if _is(part, name))


def _elements(iterated: ast.expr, target: ast.expr) -> list[tuple[ast.expr, str]]:
    """Return what a loop goes through, each with the variable that stands for an element of it."""
    parts = _gone_through(iterated)
    if isinstance(iterated, ast.Call) and getattr(iterated.func, "id", "") == "enumerate":
        target = target.elts[-1] if isinstance(target, ast.Tuple) else target
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    return [(part, getattr(one, "id", "")) for part, one in zip(parts, targets, strict=False)]


def _gone_through(iterated: ast.expr) -> list[ast.expr]:
    """Return what a loop goes through; several things side by side in a zip."""
    if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) and iterated.func.id in PASSED_THROUGH:
        return [part for argument in iterated.args for part in _gone_through(argument)]
    if isinstance(iterated, ast.BoolOp):  # `targets or []`
        return _gone_through(iterated.values[0])
    return [iterated]


def _counted_axis(index: ast.expr, counters: set[str]) -> int | None:
    """Return the axis that a loop's counter goes along in an index."""
    if isinstance(index, ast.Name) and index.id in counters:
        return STEPS_FIRST
    if isinstance(index, ast.Tuple) and len(index.elts) > 1 and isinstance(index.elts[0], ast.Slice):
        second = index.elts[1]
        return STEPS_SECOND if isinstance(second, ast.Name) and second.id in counters else None
    return None


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
