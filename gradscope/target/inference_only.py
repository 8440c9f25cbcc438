"""Models whose forward never builds a graph: there is no backward to look at."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch import nn

from gradscope.errors import InferenceOnlyError
from gradscope.target.infer.reading import source_of_forward

SWITCHES = ("no_grad", "inference_mode")
"""Context managers of torch, also used as decorators, under which no operation is recorded for a backward."""


def switch_of(cls: type[nn.Module]) -> str:
    """Return what turns gradients off for all that the forward of a class does, as it is written; "" where nothing."""
    tree = source_of_forward(cls)
    for function in ast.walk(tree) if tree is not None else ():
        if isinstance(function, ast.FunctionDef) and function.name == "forward":
            decorators = (f"@{ast.unparse(node)}" for node in function.decorator_list if _turns_off(node))
            return next(decorators, next(_around_all(function.body), ""))
    return ""


def refuse(cls: type[nn.Module], label: str) -> None:
    """Raise where the forward of a class turns gradients off.

    Raises:
        InferenceOnlyError: In one line, with the switch as it stands in the source.
    """
    if switch := switch_of(cls):
        raise InferenceOnlyError(
            f"The forward of {label} runs without gradients ({switch}): it is for inference only.",
            rule="No gradient reaches a parameter through it.",
            hint="Inspect the module inside it that is trained, from a Python file that builds it.",
        )


def _around_all(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the switch of a `with` that everything a forward returns is computed in."""
    returning = [part for part in body if any(isinstance(node, ast.Return) for node in ast.walk(part))]
    if len(returning) == 1 and isinstance(returning[0], ast.With):
        switches = (item.context_expr for item in returning[0].items if _turns_off(item.context_expr))
        yield from (f"with {ast.unparse(switch)}" for switch in switches)


def _turns_off(node: ast.expr) -> bool:
    """Whether an expression is `torch.no_grad()`, `torch.inference_mode()` or `torch.set_grad_enabled(False)`."""
    called = node.func if isinstance(node, ast.Call) else node
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    given = [*node.args, *(keyword.value for keyword in node.keywords)] if isinstance(node, ast.Call) else []
    arguments = [getattr(argument, "value", None) for argument in given]
    if name == "set_grad_enabled":
        return arguments == [False]
    return name in SWITCHES and arguments in ([], [True])
