"""What a model keeps in plain Python between two forwards: counters, caches, memory banks, generators of its own.

It is found from the modules' attributes on, through lists, dicts, sets, deques, arrays, closures of hooks and objects
of the user's classes. Objects of Python's and torch's own classes are left alone (a logger, a process group), modules
and optimizers apart, and so is what is inside of a collection of more than `snapshots.MOST_ITEMS`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import nn

from gradscope.probe.garbage import undisturbed
from gradscope.probe.listing import named_modules
from gradscope.probe.snapshots import Restore, is_without_values, of_slots, of_tensor, refill, snapshot

_PLAIN = frozenset((int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device, torch.Size, range))
_TABLES = ("_parameters", "_buffers", "_modules")
_EMPTY: dict[str, Any] = {}
HOOK_TABLES = tuple([key for key, value in vars(nn.Module()).items() if isinstance(value, dict) and key not in _TABLES])
"""The dicts of hooks that torch keeps in every module."""
_LEFT_OUT = frozenset((*HOOK_TABLES, "_non_persistent_buffers_set"))


class KeptGraph(NamedTuple):
    """A tensor that is kept together with the graph it was computed by.

    Attributes:
        place: The attribute it is found from, "encoder.cache" for instance.
        owner: The id of its module.
        tensor: The tensor.
    """

    place: str
    owner: int
    tensor: torch.Tensor


class _Module(NamedTuple):
    """What stands in one module: its attributes, and what is in them, in its tables and in those of its hooks."""

    name: str
    owner: int
    attributes: dict[str, Any]
    content: dict[str, Any]
    tables: tuple[dict[str, Any] | None, ...]
    hooks: dict[str, dict[Any, Any]]


class Kept:
    """A snapshot of what a model keeps in plain Python, to be put back.

    Which parameters, buffers, modules and hooks it has is part of it; the values of its parameters and buffers are not.
    Hooks are: a model that registers some in its first forward notes in an attribute that it has done so.

    Args:
        model: The model.
        hooks: Look also at what the hooks of its modules can reach.

    Example:
        >>> model = nn.ReLU()
        >>> model.seen = []
        >>> before = Kept(model)
        >>> model.seen.append(1)
        >>> before.restore()
        >>> model.seen
        []
    """

    @undisturbed()
    def __init__(self, model: nn.Module, *, hooks: bool = False) -> None:
        self.graphs: list[KeptGraph] = []
        self._modules: list[_Module] = []
        self._entries: list[tuple[int, Restore]] = []
        modules = named_modules(model)
        self._seen: dict[int, Any] = {id(module): module for _, module in modules}
        self._seen.update((id(p), p) for _, module in modules for p in module._parameters.values() if p is not None)
        self._buffers = {id(buffer) for _, module in modules for buffer in module._buffers.values()}
        self._waiting: list[tuple[str, int, Any]] = []
        for name, module in modules:
            self._note_module(name, module, hooks)
            while self._waiting:
                self._look_at(*self._waiting.pop())
        del self._waiting

    def restore(self, owners: frozenset[int] | None = None) -> None:
        """Put it back; where owners are given what was found from those modules only."""
        within = tuple([one.name and f"{one.name}." for one in self._modules if owners and one.owner in owners])
        for one in self._modules:
            all_of_it = owners is None or one.owner in owners
            if all_of_it:
                refill(one.attributes, one.content, _LEFT_OUT)
                for key, table in zip(_TABLES, one.tables, strict=True):
                    if table is not None:
                        refill(one.attributes[key], table)
            if all_of_it or one.name.startswith(within):  # a model hooks into its children
                _put_back_hooks(one)
        with torch.no_grad():
            for owner, put_back in self._entries:
                if owners is None or owner in owners:
                    with suppress(Exception):  # a class of the user's may refuse: the rest is put back all the same
                        put_back()

    def reached_from(self, loss: torch.Tensor) -> list[KeptGraph]:
        """Return the kept graphs that a loss was computed with."""
        nodes = [graph.tensor.grad_fn for graph in self.graphs]
        waiting = [loss.grad_fn] if nodes else []
        seen = set(waiting)
        while waiting:
            node = waiting.pop()
            following = {source for source, _ in node.next_functions if source is not None} - seen if node else set()
            seen |= following
            waiting += following
        return [graph for graph, node in zip(self.graphs, nodes, strict=True) if node in seen]

    def _note_module(self, name: str, module: nn.Module, hooks: bool) -> None:
        owner, attributes = id(module), vars(module)
        content = {key: value for key, value in attributes.items() if key not in _LEFT_OUT}
        # An empty dict stands for all that are empty: a model of thousands of modules is looked at in every step.
        tables = tuple([_copy(content.get(key)) for key in _TABLES])
        hooked = {key: table.copy() for key in HOOK_TABLES if (table := attributes.get(key))}
        self._modules.append(_Module(name, owner, attributes, content, tables, hooked))
        prefix = f"{name}." if name else ""
        slots, inside = of_slots(module)
        self._entries += [(owner, each) for each in slots]
        self._waiting += [(prefix + "slots", owner, item) for item in inside]
        for key, value in content.items():
            if type(value) not in _PLAIN and key not in _TABLES:
                self._waiting.append((prefix + key, owner, value))
        for key, buffer in module._buffers.items():
            self._waiting.append((prefix + key, owner, buffer))
        for key, table in hooked.items() if hooks else ():
            self._waiting.append((prefix + key, owner, table))

    def _look_at(self, place: str, owner: int, value: Any) -> None:
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, torch.Tensor):
            self._note_tensor(place, owner, value)
            return
        put_back, inside = snapshot(value)
        self._entries += [(owner, each) for each in put_back]
        self._waiting += [(place, owner, item) for item in inside if type(item) not in _PLAIN]

    def _note_tensor(self, place: str, owner: int, tensor: torch.Tensor) -> None:
        if tensor.grad_fn is not None:
            self.graphs.append(KeptGraph(place, owner, tensor))
        elif not is_without_values(tensor):
            self._entries.append((owner, of_tensor(tensor, with_values=id(tensor) not in self._buffers)))


def _put_back_hooks(one: _Module) -> None:
    for key in HOOK_TABLES:
        table, saved = one.attributes.get(key), one.hooks.get(key, _EMPTY)
        if table is not None and (table or saved):
            refill(table, saved)


def _copy(table: Any) -> dict[str, Any] | None:
    """Copy a table of a module; None where torch keeps it elsewhere (TorchScript)."""
    if type(table) is not dict:
        return None
    return table.copy() if table else _EMPTY
