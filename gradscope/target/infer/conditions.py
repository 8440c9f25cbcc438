"""What a forward checks of its inputs: the condition of the ``assert`` or ``if`` that a failure came from."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType, TracebackType
from typing import Any

import torch

from gradscope.target.infer.axes import with_axes
from gradscope.target.infer.changes import Lesson, each, with_guess, with_size
from gradscope.target.infer.guess import BATCH, Candidate
from gradscope.target.infer.roles import Hints
from gradscope.target.infer.sizes import resized, rounded

PURE_CALLS = ("len", "int", "min", "max", "tuple", "list")
PURE_METHODS = ("size", "dim", "ndimension", "numel", "is_floating_point", "is_complex")
"""What a condition may call when it is looked at once more: nothing that could change anything."""
PURE_NODES = (
    ast.Expression, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Constant, ast.Tuple, ast.List, ast.BinOp,
    ast.UnaryOp, ast.Call, ast.operator, ast.unaryop, ast.expr_context,
)  # fmt: skip
AXES = ("dim", "ndim", "ndimension", "len")
"""How a condition asks for the number of axes."""
KINDS = {
    torch.uint8: "bytes", torch.bool: "trues", torch.int64: "ids", torch.int32: "ids", torch.long: "ids",
    torch.float32: "float", torch.float64: "double", torch.float16: "half", torch.bfloat16: "bfloat16",
    torch.complex64: "complex",
}  # fmt: skip
"""The kind of guess that has a type."""
TURNED = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
}  # fmt: skip
"""What must hold where an error is raised if something holds."""


@dataclass(frozen=True)
class Wanted:
    """A comparison that did not hold.

    Attributes:
        left: Its left side as an expression.
        right: Its right side.
        relation: How they must compare.
        values: What the two were.
    """

    left: ast.expr
    right: ast.expr
    relation: type[ast.cmpop]
    values: tuple[Any, Any]


def by_condition(error: BaseException | None, candidate: Candidate, hints: Hints) -> Iterator[Lesson]:
    """Make sizes, axes and types what a condition of the model's own says that they must be."""
    for wanted in _comparisons(error):
        sides = (wanted.left, wanted.right, *wanted.values)
        for expression, other, got, want in (sides, (sides[1], sides[0], sides[3], sides[2])):
            cost = 0.0 if _tells_of_an_input(expression) and not isinstance(expression, ast.Constant) else 0.5
            for penalty, learnt in _changed(expression, got, want, wanted.relation, candidate, hints):
                yield cost + penalty - 0.5, learnt
            if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Mod) and other is not None:
                yield from _multiples(expression, error, candidate)


def named_in_condition(error: BaseException | None) -> str:
    """Return the condition that a failure came from, as it is written; nothing where there is none."""
    return " ".join(ast.unparse(test) for test, _ in _tests(last_of(error)))


def _changed(
    expression: ast.expr, got: Any, want: Any, relation: type[ast.cmpop], candidate: Candidate, hints: Hints
) -> Iterator[Lesson]:
    """Yield what makes the value of an expression another one."""
    name = next((n.id for n in ast.walk(expression) if isinstance(n, ast.Name)), "")
    own = tuple((n, g) for n, g in candidate if n.rpartition(".")[2] == name) or candidate
    if isinstance(want, torch.dtype) and isinstance(got, torch.dtype):
        for n, guess in own:
            if (kind := KINDS.get(want)) is not None and guess.shape:
                high = 256 if kind == "bytes" else max(guess.high, hints.vocab, 2)
                yield 0.0, with_guess(candidate, n, replace(guess, kind=kind, high=high))
    elif isinstance(got, torch.Size) and isinstance(want, tuple) and (shape := _shape_of(expression, candidate)):
        rest = want if want[:1] != got[:1] else (BATCH, *want[1:])
        if all(type(dim) is int for dim in rest):
            yield -0.2, with_guess(candidate, shape, replace(dict(candidate)[shape], shape=tuple(rest)))
        if len(got) == len(want):
            yield from _each_of_size(candidate, got, want)
    elif isinstance(got, tuple | list) and isinstance(want, tuple | list) and len(got) == len(want):
        yield from _each_of_size(candidate, got, want)
    elif type(got) is type(want) is int and got != want:
        if _asks_for_axes(expression):
            for n, _ in own:
                change = partial(with_axes, ndim=want, hints=hints)
                yield from ((p, c) for p, c in each(candidate, change, 0.0) if dict(c)[n] != dict(candidate)[n])
        else:
            size = want + {ast.Gt: 1, ast.Lt: -1}.get(relation, 0)
            yield from _of_size(own, candidate, _axis_of(expression), got, size)


def _each_of_size(candidate: Candidate, got: Sequence[Any], want: Sequence[Any]) -> Iterator[Lesson]:
    for one, other in zip(got, want, strict=True):
        if one != other and type(one) is type(other) is int:
            yield from resized(candidate, one, other)


def _shape_of(expression: ast.expr, candidate: Candidate) -> str:
    """Return the input that an expression is the whole shape of; an empty string where it is that of none."""
    asked = expression.func if isinstance(expression, ast.Call) else expression
    if not isinstance(asked, ast.Attribute) or asked.attr not in ("shape", "size"):
        return ""
    own = asked.value.id if isinstance(asked.value, ast.Name) else ""
    return next((name for name, guess in candidate if name.rpartition(".")[2] == own and guess.shape), "")


def _of_size(own: Candidate, candidate: Candidate, axis: int | None, got: int, size: int) -> Iterator[Lesson]:
    """Yield what gives an axis of the inputs that a condition speaks of another size, or puts it where it stands."""
    for name, guess in own:
        if axis is not None and -len(guess.shape) <= axis < len(guess.shape) and guess.shape[axis] == got:
            yield 0.0, with_guess(candidate, name, with_size(guess, axis % len(guess.shape), size))
        if got in guess.shape[1:] and size in guess.shape[1:]:  # the axes the other way round
            swapped = tuple({got: size, size: got}.get(dim, dim) if dim else dim for dim in guess.shape)
            yield -0.1, with_guess(candidate, name, replace(guess, shape=swapped))
    if got > 0 and size > 0:
        yield from resized(candidate, got, size)


def _multiples(expression: ast.BinOp, error: BaseException | None, candidate: Candidate) -> Iterator[Lesson]:
    """A size must be a multiple of another."""
    frame = last_of(error)
    factor = value_of(expression.right, frame.tb_frame) if frame is not None else None
    size = value_of(expression.left, frame.tb_frame) if frame is not None else None
    if type(factor) is int and factor > 1 and type(size) is int:
        for axis in (1, 2, 3):
            of_that_size = tuple(n for n, g in candidate if axis < len(g.shape) and g.shape[axis] == size)
            changed = each(candidate, partial(rounded, axis=axis, factor=factor), 0.0)
            yield from ((p, c) for p, c in changed if any(dict(c)[n] != dict(candidate)[n] for n in of_that_size))


def _tells_of_an_input(expression: ast.expr) -> bool:
    """Whether an expression is no setting of the model's own."""
    return not any(isinstance(node, ast.Name) and node.id == "self" for node in ast.walk(expression))


def _asks_for_axes(expression: ast.expr) -> bool:
    words = [n.attr for n in ast.walk(expression) if isinstance(n, ast.Attribute)]
    calls = [n.func.id for n in ast.walk(expression) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    return any(word in AXES for word in words) or ("len" in calls and "shape" in words)


def _axis_of(expression: ast.expr) -> int | None:
    """Return which axis ``x.shape[1]`` or ``x.size(1)`` is."""
    index: ast.expr | None = None
    if isinstance(expression, ast.Subscript):
        index = expression.slice
    elif isinstance(expression, ast.Call) and expression.args and isinstance(expression.func, ast.Attribute):
        index = expression.args[0]
    try:
        value = ast.literal_eval(index) if index is not None else None
    except ValueError:
        return None
    return value if type(value) is int else None


def _comparisons(error: BaseException | None) -> Iterator[Wanted]:
    """Yield the comparisons of the failing condition that can be looked at once more, and do not hold."""
    last = last_of(error)
    for test, must_hold in _tests(last):
        for node in ast.walk(test):
            if last is None or not isinstance(node, ast.Compare) or len(node.ops) != 1:
                continue
            values = value_of(node.left, last.tb_frame), value_of(node.comparators[0], last.tb_frame)
            relation = type(node.ops[0]) if must_hold else TURNED.get(type(node.ops[0]))
            if relation is not None and None not in values:
                yield Wanted(node.left, node.comparators[0], relation, values)


def last_of(error: BaseException | None) -> TracebackType | None:
    """Return where an error was raised."""
    here = error.__traceback__ if error is not None else None
    while here is not None and here.tb_next is not None:
        here = here.tb_next
    return here


def _tests(last: TracebackType | None) -> Iterator[tuple[ast.expr, bool]]:
    """Yield the condition of the statement that raised, and whether it must hold or must not."""
    if last is None:
        return
    tree = _parsed(last.tb_frame.f_code.co_filename)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Assert) and _is_at(node, last.tb_lineno):
            yield node.test, True
        if isinstance(node, ast.If) and any(
            isinstance(s, ast.Raise) and _is_at(s, last.tb_lineno) for s in node.body
        ):
            yield node.test, False


def parts_of_statement(last: TracebackType) -> Iterator[ast.AST]:
    """Yield the parts of the innermost statement that a line belongs to; none where there is no source."""
    tree = _parsed(last.tb_frame.f_code.co_filename)
    found = [n for n in ast.walk(tree) if isinstance(n, ast.stmt) and _is_at(n, last.tb_lineno)] if tree else []
    return ast.walk(found[-1]) if found else iter(())


def _is_at(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or 0)


@functools.lru_cache(maxsize=16)
def _parsed(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


def value_of(expression: ast.expr, frame: FrameType) -> Any:
    """Return what an expression of a condition was; None where looking could change something, or fails."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Call):
            function = node.func
            is_pure = isinstance(function, ast.Name) and function.id in PURE_CALLS
            is_pure = is_pure or (isinstance(function, ast.Attribute) and function.attr in PURE_METHODS)
            if not is_pure:
                return None
        elif not isinstance(node, PURE_NODES):
            return None
    try:
        code = compile(ast.Expression(expression), "<condition>", "eval")
        return eval(code, frame.f_globals, frame.f_locals)  # the model's own expression, once more
    except Exception:  # what could be computed a moment ago may refuse now; then it says nothing
        return None
