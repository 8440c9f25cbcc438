"""How one object that a model keeps is put back: collections, closures, generators, arrays, objects, tensors."""

from __future__ import annotations

import random
import sys
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import lru_cache, partial
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

MOST_ITEMS = 10_000
"""A longer list or dict is a data set; it is put back, but what its items hold is not looked at."""

Restore = Callable[[], object]
_ELSEWHERE = frozenset({*sys.stdlib_module_names, "torch", "numpy"} - {"collections", "types", "weakref"})
"""Packages whose objects and functions are left alone; those that hold what the user puts in are none."""


def snapshot(value: Any) -> tuple[list[Restore], list[Any]]:
    """Return what puts an object back, and what to look at inside of it."""
    if isinstance(value, tuple | frozenset):
        return [], list(value)
    if isinstance(value, ModuleType | type | weakref.ReferenceType):
        return [], []
    if isinstance(value, MethodType):
        return [], [value.__self__, value.__func__]
    if isinstance(value, partial):
        return [], [value.func, value.args, value.keywords]
    if isinstance(value, FunctionType):
        return _of_function(value)
    if (generator := _of_generator(value)) is not None:
        return [generator], []
    as_object, attributes = _of_object(value)
    if not isinstance(value, list | dict | set | deque):
        return as_object, attributes
    as_collection, items = _of_collection(value)
    return [*as_collection, *as_object], [*items, *attributes]


def _of_collection(value: Any) -> tuple[list[Restore], list[Any]]:
    if isinstance(value, dict):
        kind = _dict_kind(value)
        content = dict(kind.items(value))
        return [lambda: refill(value, content)], _few([*content, *content.values()])
    if isinstance(value, set):
        members = set(value)
        return [lambda: None if set(value) == members else _exchange(value, set, set.update, members)], _few([*members])
    series = deque if isinstance(value, deque) else list
    items = [*series.__iter__(value)]

    def put_back() -> None:
        now = [*series.__iter__(value)]
        if len(now) != len(items) or any(a is not b for a, b in zip(now, items, strict=True)):
            _exchange(value, series, series.extend, items)

    return [put_back], _few(items)


def _few(items: list[Any]) -> list[Any]:
    return items if len(items) <= MOST_ITEMS else []


def _exchange(value: Any, kind: Any, grow: Any, content: Any) -> None:
    kind.clear(value)
    grow(value, content)


def _dict_kind(value: dict[Any, Any]) -> Any:
    return OrderedDict if isinstance(value, OrderedDict) else dict


def refill(value: dict[Any, Any], content: dict[Any, Any], left_out: frozenset[str] = frozenset()) -> None:
    """Give a dict its old content, in the old order; whatever class of dict it is."""
    kind = _dict_kind(value)
    now = {key: item for key, item in kind.items(value) if key not in left_out}
    if list(now) != list(content):
        for key in now:
            kind.__delitem__(value, key)
        now = {}
    for key, item in content.items():
        if key not in now or now[key] is not item:
            kind.__setitem__(value, key, item)


def _of_function(value: FunctionType) -> tuple[list[Restore], list[Any]]:
    """Look at the variables that a function shares with the one it was made in."""
    if _is_elsewhere(value):
        return [], []
    cells = [(cell, cell.cell_contents) for cell in value.__closure__ or () if _is_filled(cell)]

    def put_back() -> None:
        for cell, content in cells:
            cell.cell_contents = content

    return [put_back] if cells else [], [content for _, content in cells]


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - asking is the only way
    except ValueError:
        return False
    return True


def _of_generator(value: Any) -> Restore | None:
    """Return what puts a random generator or an array of numpy back, None for all else."""
    if isinstance(value, torch.Generator):
        state = value.get_state()
        return lambda: value.set_state(state)
    if isinstance(value, random.Random):
        drawn = value.getstate()
        return lambda: value.setstate(drawn)
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if isinstance(value, numpy.random.RandomState):
        drawn = value.get_state()
        return lambda: value.set_state(drawn)
    if isinstance(value, numpy.random.Generator):
        bits = value.bit_generator.state
        return lambda: setattr(value.bit_generator, "state", bits)
    if isinstance(value, numpy.ndarray) and value.flags.writeable:
        numbers = value.copy()
        return lambda: numpy.copyto(value, numbers)
    return None


def _of_object(value: Any) -> tuple[list[Restore], list[Any]]:
    """Look at the attributes of an object of the user's, without asking its class for anything."""
    kind = type(value)
    if _is_elsewhere(kind) and not isinstance(value, nn.Module | torch.optim.Optimizer):
        return [], []
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        attributes = {}
    content = dict(attributes)
    slots, inside = of_slots(value)
    return [lambda: refill(attributes, content), *slots], [*content.values(), *inside]


def of_slots(value: Any) -> tuple[list[Restore], list[Any]]:
    """Look at what an object keeps in slots."""
    kind: Any = type(value)
    slots = _slots(kind)
    values = [(slot, slot.__get__(value)) for slot in slots if _is_set(slot, value)]

    def put_back() -> None:
        for slot in slots:
            if _is_set(slot, value):
                slot.__delete__(value)
        for slot, item in values:
            slot.__set__(value, item)

    return [put_back] if slots else [], [item for _, item in values]


@lru_cache(maxsize=4096)
def _slots(kind: type) -> list[Any]:
    """Return what reads and writes the slots of a class, those of the classes that it was made from included."""
    members = [vars(base).values() for base in kind.__mro__ if "__slots__" in vars(base) and not _is_elsewhere(base)]
    return [member for values in members for member in values if isinstance(member, MemberDescriptorType)]


def _is_set(slot: Any, value: Any) -> bool:
    try:
        slot.__get__(value)
    except AttributeError:
        return False
    return True


def _is_elsewhere(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] in _ELSEWHERE


def is_without_values(tensor: torch.Tensor) -> bool:
    """Tell whether there is nothing in a tensor that could be put back."""
    return is_lazy(tensor) or tensor.is_meta or tensor.is_inference()


def of_tensor(tensor: torch.Tensor, *, with_values: bool) -> Restore:
    """Return what puts back the values of a tensor and its `.grad`, and frees it of a graph written into it."""
    data = tensor.data
    values = data.clone() if with_values else None
    has_graph, learns = tensor.grad_fn is not None, with_values and tensor.is_leaf and tensor.requires_grad
    grad = tensor.grad if learns else None
    kept = None if grad is None else grad.detach().clone()

    def put_back() -> None:
        if tensor.grad_fn is not None and tensor._base is None and not has_graph:
            tensor.detach_()
        if values is not None:
            if not shares(tensor, data):
                tensor.data = data
            write(data, values)
            if learns:
                tensor.grad = grad
        if grad is not None and kept is not None:
            grad.copy_(kept)

    return put_back


def shares(tensor: torch.Tensor, data: torch.Tensor) -> bool:
    """Tell whether a tensor still is the same piece of the same memory."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        return True
    return tensor.dtype == data.dtype and tensor.shape == data.shape and tensor.data_ptr() == data.data_ptr()


def write(data: torch.Tensor, values: torch.Tensor) -> None:
    """Write values in place; once where many elements are one in memory (`expand`)."""
    if data.layout is torch.strided and not data.is_nested and 0 in data.stride():
        once = tuple([slice(0, 1) if stride == 0 else slice(None) for stride in data.stride()])
        data, values = data[once], values[once]
    data.copy_(values)
