"""What an expression of the user's file comes to, where it only puts values and settings together."""

from __future__ import annotations

import argparse
import ast
import types
from collections.abc import Callable, Mapping
from typing import Any

SAFE = (
    ast.Constant, ast.Name, ast.Load, ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.Dict,
    ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Call, ast.keyword, ast.IfExp, ast.Compare, ast.cmpop,
)  # fmt: skip
"""Parts of expressions that compute a value and do nothing else."""
MAKERS = (
    dict, list, tuple, int, float, str, bool, range, len, min, max, types.SimpleNamespace, argparse.Namespace
)  # fmt: skip
"""What may be called, beside the classes of the user's file."""
PARSES = ("parse_args", "parse_known_args")
"""Calls that read the command line."""


class CannotTellError(Exception):
    """An expression depends on something that nothing but running the file would tell."""


class Names:
    """The names that an expression may use.

    Args:
        namespace: Those of the file.
        assigned: What is assigned in the block that the expression stands in.
        parsed: Gives what the file's command line reads by default; None where it has none.
    """

    def __init__(
        self, namespace: Mapping[str, Any], assigned: Mapping[str, ast.expr], parsed: Callable[[], Any]
    ) -> None:
        self._namespace, self._assigned, self._parsed = namespace, dict(assigned), parsed

    def value(self, node: ast.expr) -> Any:
        """Return what an expression comes to.

        Raises:
            CannotTellError: If it calls anything but what makes values and settings.
        """
        if self._reads_command_line(node):
            if (parsed := self._parsed()) is not None:
                return parsed
            raise CannotTellError
        if not all(isinstance(part, SAFE) for part in ast.walk(node)):
            raise CannotTellError
        calls = [part.func for part in ast.walk(node) if isinstance(part, ast.Call)]
        names = {part.id: self._named(part.id) for part in ast.walk(node) if isinstance(part, ast.Name)}
        if not all(self._makes_a_value(_evaluated(call, names)) for call in calls):
            raise CannotTellError
        return _evaluated(node, names)

    def _named(self, name: str) -> Any:
        if name in self._assigned:
            node = self._assigned.pop(name)  # a name that is made of itself is not followed further
            try:
                return self.value(node)
            finally:
                self._assigned[name] = node
        if name in self._namespace:
            return self._namespace[name]
        found = next((maker for maker in MAKERS if maker.__name__ == name), None)
        if found is None:
            raise CannotTellError
        return found

    def _reads_command_line(self, node: ast.expr) -> bool:
        """Whether an expression is ``parser.parse_args()``, or calls a function of the file that returns that."""
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Attribute):
            return node.func.attr in PARSES
        function = self._namespace.get(node.func.id) if isinstance(node.func, ast.Name) else None
        return isinstance(function, types.FunctionType) and any(name in function.__code__.co_names for name in PARSES)

    def _makes_a_value(self, function: Any) -> bool:
        is_own = isinstance(function, type) and function.__module__ == self._namespace.get("__name__")
        return is_own or function in MAKERS


def _evaluated(node: ast.expr, names: Mapping[str, Any]) -> Any:
    expression = ast.fix_missing_locations(ast.Expression(node))
    compiled = compile(expression, "<the user's file>", "eval")  # of parts in SAFE alone
    return eval(compiled, {"__builtins__": {}}, dict(names))
